variable "name" {
  description = "What the queue and the rule are named after."
  type        = string

  validation {
    condition     = can(regex("^costopt(-[a-z0-9]+)*$", var.name))
    error_message = "name must be costopt, or begin with costopt- and go on in lower-case letters, digits and hyphens."
  }
}

variable "tags" {
  description = "Tags of everything here."
  type        = map(string)
  default     = {}
}
