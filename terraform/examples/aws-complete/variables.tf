variable "name" {
  description = "What everything is named after."
  type        = string
  default     = "costopt-research"
}

variable "image" {
  description = "The daemon's container image, built from deploy/Dockerfile."
  type        = string
}

variable "run_on" {
  description = "fargate or ec2."
  type        = string
  default     = "ec2"
}

variable "database" {
  description = "sqlite or postgres."
  type        = string
  default     = "postgres"
}

variable "node_image_ids" {
  description = "The nodes' machine images by region; empty: the Deep Learning AMI."
  type        = map(string)
  default     = {}
}

variable "instance_image_id" {
  description = "Machine image of the daemon's instance; null: the newest Amazon Linux 2023."
  type        = string
  default     = null
}

variable "alarm_emails" {
  description = "Who receives alarms and of AWS Budgets' warnings."
  type        = list(string)
  default     = []
}

variable "force_destroy" {
  description = "Whether destroy deletes all checkpoints."
  type        = bool
  default     = false
}

variable "environment" {
  description = "Further environment variables of the daemon."
  type        = map(string)
  default     = {}
}
