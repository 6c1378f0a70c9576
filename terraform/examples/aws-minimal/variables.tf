variable "region" {
  description = "Where the daemon runs and rents."
  type        = string
  default     = "us-east-1"
}

variable "image" {
  description = "The daemon's container image, built from deploy/Dockerfile."
  type        = string
}

variable "environment" {
  description = "Further environment variables of the daemon."
  type        = map(string)
  default     = {}
}
