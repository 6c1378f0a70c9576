variable "project" {
  description = "The project's id."
  type        = string
}

variable "region" {
  description = "Where the daemon runs and rents."
  type        = string
  default     = "us-central1"
}

variable "image" {
  description = "The daemon's container image, built from deploy/Dockerfile."
  type        = string
}
