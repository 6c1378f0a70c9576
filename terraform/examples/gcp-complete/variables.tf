variable "project" {
  description = "The project's id."
  type        = string
}

variable "image" {
  description = "The daemon's container image, built from deploy/Dockerfile."
  type        = string
}

variable "database_password" {
  description = "The database user's password: TF_VAR_database_password."
  type        = string
  sensitive   = true
  ephemeral   = true
}

variable "alarm_emails" {
  description = "Who receives alarms."
  type        = list(string)
  default     = []
}
