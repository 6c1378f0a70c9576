variable "project" {
  description = "The project's id."
  type        = string

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{4,28}[a-z0-9]$", var.project))
    error_message = "project must be an id of 6 to 30 lower-case letters, digits and hyphens, not a name or number."
  }
}

variable "region" {
  description = "Where the daemon runs and rents."
  type        = string

  validation {
    condition     = can(regex("^[a-z]+-[a-z]+[0-9]+$", var.region))
    error_message = "region must be named like us-central1."
  }
}

variable "zone" {
  description = "Zone of the daemon's machine and disk. Null: a of the region."
  type        = string
  default     = null
}

variable "other_regions" {
  description = "Further regions to rent in."
  type        = list(string)
  default     = []
  nullable    = false

  validation {
    condition     = alltrue([for region in var.other_regions : can(regex("^[a-z]+-[a-z]+[0-9]+$", region))])
    error_message = "other_regions must be named like us-central1."
  }
}

variable "name" {
  description = "What everything is named after."
  type        = string
  default     = "costopt"
  nullable    = false

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{3,18}[a-z0-9]$", var.name))
    error_message = "name must be 5 to 20 lower-case letters, digits and hyphens, and begin with a letter."
  }
}

variable "owner" {
  description = "Value of the owner label of all that the daemon launches. Null: the name."
  type        = string
  default     = null

  validation {
    condition     = var.owner == null || can(regex("^[a-z0-9][a-z0-9_-]{0,62}$", var.owner))
    error_message = "owner must be up to 63 lower-case letters, digits, underscores and hyphens."
  }
}

variable "image" {
  description = "The daemon's container image, built from deploy/Dockerfile, such as us-central1-docker.pkg.dev/project/costopt/costopt:0.1.0."
  type        = string

  validation {
    condition     = can(regex("^[A-Za-z0-9][A-Za-z0-9._:/@-]+$", var.image)) && !endswith(var.image, ":latest")
    error_message = "image must be the name of a container image with a tag or digest other than latest, which would change by itself."
  }
}

variable "mode" {
  description = "The daemon's mode at its first start: observe, recommend or enforce."
  type        = string
  default     = "observe"

  validation {
    condition     = contains(["observe", "recommend", "enforce"], var.mode)
    error_message = "mode must be observe, recommend or enforce."
  }

  validation {
    condition     = var.mode != "enforce" || var.monthly_budget_usd != null
    error_message = "mode enforce spends money by itself: set monthly_budget_usd, above which nothing is launched."
  }
}

variable "monthly_budget_usd" {
  description = "What all jobs together may cost in a calendar month (UTC). Required for the mode enforce; null: the daemon's own guards."
  type        = number
  default     = null

  validation {
    condition     = var.monthly_budget_usd == null || try(var.monthly_budget_usd > 0, false)
    error_message = "monthly_budget_usd must be above 0."
  }
}

variable "guards" {
  description = "Further limits to all jobs together, which count where monthly_budget_usd is set."
  type = object({
    max_usd_per_hour      = optional(number, 200)
    max_nodes             = optional(number, 64)
    max_launches_per_hour = optional(number, 240)
  })
  default  = {}
  nullable = false

  validation {
    condition     = alltrue([for most in values(var.guards) : most > 0])
    error_message = "each guard must be above 0."
  }
}

variable "instance_types" {
  description = "Names and wildcards of the machine types to rent, such as a3-* or n1-standard-8+1xT4; empty: every type with GPUs of its own."
  type        = list(string)
  default     = []
  nullable    = false
}

variable "node_external_ip" {
  description = "Whether nodes get addresses of their own; without, they go out through Cloud NAT in each region."
  type        = bool
  default     = false
  nullable    = false
}

variable "subnet_cidrs" {
  description = "Addresses of the new network's subnets, by region. Null: 10.80.0.0/20 and what follows."
  type        = map(string)
  default     = null

  validation {
    condition     = var.subnet_cidrs == null || try(alltrue([for cidr in values(var.subnet_cidrs) : can(cidrnetmask(cidr))]), false)
    error_message = "subnet_cidrs must be IPv4 ranges such as 10.80.0.0/20."
  }
}

variable "run_on" {
  description = "Where the daemon runs: vm (one small machine) or cloud_run (needs the database postgres, for it has no disk)."
  type        = string
  default     = "vm"

  validation {
    condition     = contains(["vm", "cloud_run"], var.run_on)
    error_message = "run_on must be vm or cloud_run."
  }

  validation {
    condition     = var.run_on != "cloud_run" || var.database == "postgres"
    error_message = "Cloud Run keeps no files: set database to postgres."
  }
}

variable "machine_type" {
  description = "The daemon's machine."
  type        = string
  default     = "e2-small"
  nullable    = false
}

variable "database" {
  description = "Where ledger and registry are kept: sqlite (a file on a persistent disk) or postgres (Cloud SQL)."
  type        = string
  default     = "sqlite"

  validation {
    condition     = contains(["sqlite", "postgres"], var.database)
    error_message = "database must be sqlite or postgres."
  }
}

variable "postgres_tier" {
  description = "The Cloud SQL instance's tier where database is postgres."
  type        = string
  default     = "db-f1-micro"
  nullable    = false
}

variable "database_password" {
  description = "The password of the database's user where database is postgres; in no state file."
  type        = string
  default     = null
  sensitive   = true
  ephemeral   = true

  validation {
    condition     = var.database != "postgres" || try(length(var.database_password) >= 16, false)
    error_message = "postgres needs a database_password of 16 characters or more."
  }
}

variable "database_password_version" {
  description = "A number to raise with each new database_password."
  type        = number
  default     = 1
  nullable    = false
}

variable "bucket_name" {
  description = "The store's bucket. Null: project and name, joined by a hyphen."
  type        = string
  default     = null

  validation {
    condition     = var.bucket_name == null || can(regex("^[a-z0-9][a-z0-9-]{1,61}[a-z0-9]$", var.bucket_name))
    error_message = "bucket_name must be 3 to 63 lower-case letters, digits and hyphens."
  }
}

variable "store_prefix" {
  description = "Where in the bucket code, messages and checkpoints lie."
  type        = string
  default     = "costopt"
  nullable    = false

  validation {
    condition     = can(regex("^[A-Za-z0-9_-]+(/[A-Za-z0-9_-]+)*$", var.store_prefix)) && !startswith(var.store_prefix, "deployed")
    error_message = "store_prefix must be names joined by slashes, other than deployed, which holds what nodes must not change."
  }
}

variable "keep_old_versions_days" {
  description = "For how long what was overwritten or deleted in the bucket can be restored."
  type        = number
  default     = 7
  nullable    = false

  validation {
    condition     = var.keep_old_versions_days >= 1
    error_message = "keep_old_versions_days must be 1 or more."
  }
}

variable "cold_after_days" {
  description = "After how many days checkpoints that are still there go to Nearline, which is cheaper to keep, is billed for 30 days at the least and for reading; null: never."
  type        = number
  default     = null

  validation {
    condition     = var.cold_after_days == null ? true : var.cold_after_days >= 30
    error_message = "cold_after_days must be 30 or more."
  }
}

variable "force_destroy" {
  description = "Whether destroy deletes the bucket with all checkpoints in it, and the database."
  type        = bool
  default     = false
  nullable    = false
}

variable "refuse_destroy_with_nodes" {
  description = "Whether destroy stops while nodes of this owner live. Needs gcloud, and its credentials, where Terraform runs."
  type        = bool
  default     = true
  nullable    = false
}

variable "jobs" {
  description = "Jobs that the daemon is handed at its start, by name: the text of the job file, a shipped policy's name or the text of a policy file, and the folder whose files the job runs with. Their nodes get service accounts that reach their job's part of the store alone, and lose them when the job is taken out here."
  type = map(object({
    document = string
    policy   = optional(string, "balanced")
    priority = optional(number, 0)
    folder   = optional(string)
  }))
  default  = {}
  nullable = false

  validation {
    condition     = alltrue([for name, job in var.jobs : try(yamldecode(job.document).name == name, false)])
    error_message = "jobs must be keyed by the name that is in each document, which must be YAML."
  }

  # https://cloud.google.com/iam/quotas: a project has 100 service accounts until more are asked for.
  validation {
    condition     = length(var.jobs) <= 90
    error_message = "jobs must be 90 at most, for each has a service account: hand in more with costopt submit."
  }

  validation {
    condition     = alltrue([for job in values(var.jobs) : job.priority >= -1000 && job.priority <= 1000])
    error_message = "priority must be from -1000 to 1000."
  }
}

variable "node_secrets" {
  description = "Secrets of Google Secret Manager, by name or as projects/PROJECT/secrets/NAME, that nodes of jobs submitted later may read. Jobs of this module's jobs read those that their files name."
  type        = list(string)
  default     = []
  nullable    = false
}

variable "node_repositories" {
  description = "Repositories of Artifact Registry from which all nodes may pull images, as projects/PROJECT/locations/LOCATION/repositories/NAME."
  type        = list(string)
  default     = []
  nullable    = false

  validation {
    condition     = alltrue([for name in var.node_repositories : can(regex("^projects/[^/]+/locations/[^/]+/repositories/[^/]+$", name))])
    error_message = "node_repositories must be named as projects/PROJECT/locations/LOCATION/repositories/NAME."
  }
}

variable "tick_s" {
  description = "Seconds between the daemon's decisions."
  type        = number
  default     = 60
  nullable    = false

  validation {
    condition     = var.tick_s >= 1 && var.tick_s <= 3600
    error_message = "tick_s must be from 1 to 3600."
  }
}

variable "alarm_emails" {
  description = "Who receives alarms."
  type        = list(string)
  default     = []
  nullable    = false

  validation {
    condition     = alltrue([for address in var.alarm_emails : can(regex("^[^@\\s]+@[^@\\s]+$", address))])
    error_message = "alarm_emails must be addresses."
  }
}

variable "labels" {
  description = "Labels of everything here."
  type        = map(string)
  default     = {}
  nullable    = false
}
