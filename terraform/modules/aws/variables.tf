variable "name" {
  description = "What everything is named after: costopt, or costopt- and more."
  type        = string
  default     = "costopt"

  validation {
    condition     = can(regex("^costopt(-[a-z0-9]+)*$", var.name)) && length(var.name) <= 32
    error_message = "name must be costopt, or begin with costopt- and go on in lower-case letters, digits and hyphens; 32 characters at most."
  }
}

variable "owner" {
  description = "Value of the tag costopt:owner of all that the daemon launches; it can end nothing else. Null: the name. Two daemons in one account need two owners."
  type        = string
  default     = null

  validation {
    condition     = var.owner == null || can(regex("^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$", var.owner))
    error_message = "owner must be up to 63 letters, digits, dots, underscores and hyphens, and begin with a letter or digit."
  }
}

variable "image" {
  description = "The daemon's container image, built from deploy/Dockerfile, such as 123456789012.dkr.ecr.us-east-1.amazonaws.com/costopt:0.1.0."
  type        = string

  validation {
    condition     = can(regex("^[A-Za-z0-9][A-Za-z0-9._:/@-]+$", var.image)) && !endswith(var.image, ":latest")
    error_message = "image must be the name of a container image with a tag or digest other than latest, which would change by itself."
  }
}

variable "mode" {
  description = "The daemon's mode at its first start: observe (plans, does nothing), recommend (asks) or enforce (launches and ends nodes). Later changes are made with costopt daemon mode."
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
  description = "What all jobs together may cost in a calendar month (UTC); above it nothing is launched. Required for the mode enforce; null: the daemon's own guards."
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
  description = "Names and wildcards of the instance types to rent, such as p5*; empty: every type with a GPU."
  type        = list(string)
  default     = []
  nullable    = false
}

variable "placement_scores" {
  description = "Whether spot placement scores are asked for; their number in a day is limited for each account."
  type        = bool
  default     = true
  nullable    = false
}

variable "node_image" {
  description = "The nodes' machine image: an SSM parameter. Null: the Deep Learning AMI with PyTorch."
  type        = string
  default     = null
}

variable "node_image_ids" {
  description = "The nodes' machine images by region, in place of node_image."
  type        = map(string)
  default     = {}
  nullable    = false

  validation {
    condition     = alltrue([for id in values(var.node_image_ids) : can(regex("^ami-[0-9a-f]+$", id))])
    error_message = "node_image_ids must map regions to ids such as ami-0123456789abcdef0."
  }
}

variable "node_root_gib" {
  description = "Size of a node's gp3 root volume in GiB."
  type        = number
  default     = 200
  nullable    = false

  validation {
    condition     = var.node_root_gib >= 8 && var.node_root_gib <= 16384
    error_message = "node_root_gib must be from 8 to 16384."
  }
}

variable "other_regions" {
  description = "Further regions to rent in. queue_url comes from modules/events with that region's provider; node_subnets are ids by zone id. Without them: no notices but the nodes' own, default subnets and default security group."
  type = map(object({
    queue_url               = optional(string)
    node_security_group_ids = optional(list(string), [])
    node_subnets            = optional(map(string), {})
  }))
  default  = {}
  nullable = false

  validation {
    condition     = alltrue([for region in keys(var.other_regions) : can(regex("^[a-z]{2,4}(-[a-z]+)+-[0-9]+$", region))])
    error_message = "other_regions must be named like us-west-2."
  }

  validation {
    condition     = alltrue([for there in values(var.other_regions) : there.queue_url == null || can(regex("^https?://[^/]+/[0-9]+/[^/]+$", there.queue_url))])
    error_message = "queue_url must be that of an SQS queue, such as https://sqs.us-west-2.amazonaws.com/123456789012/costopt-events."
  }
}

variable "vpc" {
  description = "A network to use in place of a new one. subnet_ids are for the daemon and need a way to AWS (NAT or endpoints); node_subnets are subnets' ids by zone id, node_security_group_ids let the nodes of a gang reach each other."
  type = object({
    id                      = string
    subnet_ids              = list(string)
    node_subnets            = map(string)
    node_security_group_ids = list(string)
  })
  default = null

  validation {
    condition     = var.vpc == null || try(length(var.vpc.subnet_ids) > 0 && length(var.vpc.node_subnets) > 0, false)
    error_message = "vpc must name at least one of subnet_ids and of node_subnets."
  }
}

variable "vpc_cidr" {
  description = "Addresses of the new network."
  type        = string
  default     = "10.64.0.0/16"
  nullable    = false

  validation {
    condition     = can(cidrnetmask(var.vpc_cidr)) && try(tonumber(split("/", var.vpc_cidr)[1]) <= 20, false)
    error_message = "vpc_cidr must be an IPv4 range of /20 or larger, such as 10.64.0.0/16."
  }
}

variable "max_zones" {
  description = "In how many zones of the region the new network has subnets; more zones are more pools to choose from."
  type        = number
  default     = 6
  nullable    = false

  validation {
    condition     = var.max_zones >= 2 && var.max_zones <= 8 && floor(var.max_zones) == var.max_zones
    error_message = "max_zones must be from 2 to 8."
  }
}

variable "run_on" {
  description = "Where the daemon runs: fargate (ECS) or ec2 (one small instance that an auto scaling group replaces)."
  type        = string
  default     = "fargate"

  validation {
    condition     = contains(["fargate", "ec2"], var.run_on)
    error_message = "run_on must be fargate or ec2."
  }
}

variable "cpu" {
  description = "Units of CPU of the Fargate task; 1024 are one core."
  type        = number
  default     = 512
  nullable    = false

  validation {
    condition     = contains([256, 512, 1024, 2048, 4096], var.cpu)
    error_message = "cpu must be 256, 512, 1024, 2048 or 4096."
  }
}

variable "memory_mib" {
  description = "Memory of the Fargate task in MiB; Fargate takes from two to eight times cpu."
  type        = number
  default     = 2048
  nullable    = false

  validation {
    condition     = var.memory_mib >= 2 * var.cpu && var.memory_mib <= 8 * var.cpu && var.memory_mib % 1024 == 0
    error_message = "memory_mib must be whole GiB, from two to eight times cpu."
  }
}

variable "instance_type" {
  description = "The daemon's instance where it runs on EC2."
  type        = string
  default     = "t3.small"
  nullable    = false
}

variable "instance_image_id" {
  description = "Machine image of that instance, an Amazon Linux 2023. Null: the newest."
  type        = string
  default     = null

  validation {
    condition     = var.instance_image_id == null || can(regex("^ami-[0-9a-f]+$", var.instance_image_id))
    error_message = "instance_image_id must be an id such as ami-0123456789abcdef0."
  }
}

variable "database" {
  description = "Where ledger and registry are kept: sqlite (a file on EFS) or postgres (RDS)."
  type        = string
  default     = "sqlite"

  validation {
    condition     = contains(["sqlite", "postgres"], var.database)
    error_message = "database must be sqlite or postgres."
  }
}

variable "postgres" {
  description = "The RDS instance where database is postgres."
  type = object({
    instance_class      = optional(string, "db.t4g.micro")
    storage_gib         = optional(number, 20)
    multi_az            = optional(bool, false)
    backup_days         = optional(number, 7)
    deletion_protection = optional(bool, true)
  })
  default  = {}
  nullable = false

  validation {
    condition     = var.postgres.storage_gib >= 20 && var.postgres.backup_days >= 1 && var.postgres.backup_days <= 35
    error_message = "postgres needs 20 GiB or more, and 1 to 35 days of backups."
  }
}

variable "bucket_name" {
  description = "The store's bucket. Null: name, account and region, joined by hyphens."
  type        = string
  default     = null

  validation {
    condition     = var.bucket_name == null || can(regex("^[a-z0-9][a-z0-9-]{1,61}[a-z0-9]$", var.bucket_name))
    error_message = "bucket_name must be 3 to 63 lower-case letters, digits and hyphens."
  }
}

variable "store_prefix" {
  description = "Where in the bucket code, messages and checkpoints lie; nodes reach nothing else."
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
  description = "After how many days checkpoints that are still there go to S3 Standard-IA, which is cheaper to keep, is billed for 30 days at the least and for reading; null: never."
  type        = number
  default     = null

  validation {
    condition     = var.cold_after_days == null ? true : var.cold_after_days >= 30
    error_message = "cold_after_days must be 30 or more."
  }
}

variable "force_destroy" {
  description = "Whether destroy deletes the bucket with all checkpoints in it, and the database without a last snapshot."
  type        = bool
  default     = false
  nullable    = false
}

variable "refuse_destroy_with_nodes" {
  description = "Whether destroy stops while nodes of this owner live. Needs the AWS CLI, and credentials in its environment, where Terraform runs."
  type        = bool
  default     = true
  nullable    = false
}

variable "jobs" {
  description = "Jobs that the daemon is handed at its start, by name: the text of the job file, a shipped policy's name or the text of a policy file, and the folder whose files the job runs with. Their nodes get roles that reach their job's part of the store alone, and lose them when the job is taken out here."
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

  validation {
    condition     = alltrue([for job in keys(var.jobs) : length("${var.name}-node-${job}") <= 64])
    error_message = "a job's role is named NAME-node-JOB, and IAM takes 64 characters: shorten name or the job's."
  }

  # IAM takes 10,240 characters of a role's policies. With names as long as they may be, a job needs 540.
  validation {
    condition     = length(var.jobs) <= 17
    error_message = "jobs must be 17 at most, for policies that name them all have an end: hand in more with costopt submit."
  }

  validation {
    condition     = alltrue([for job in values(var.jobs) : job.priority >= -1000 && job.priority <= 1000])
    error_message = "priority must be from -1000 to 1000."
  }
}

variable "node_secrets" {
  description = "Secrets of AWS Secrets Manager, by name or ARN, that nodes of jobs submitted later may read. Jobs of this module's jobs read those that their files name."
  type        = list(string)
  default     = []
  nullable    = false
}

variable "node_repositories" {
  description = "Repositories of Amazon ECR from which all nodes may pull images, such as train."
  type        = list(string)
  default     = []
  nullable    = false
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

variable "environment" {
  description = "Further environment variables of the daemon, such as those of a proxy."
  type        = map(string)
  default     = {}
  nullable    = false

  validation {
    condition     = length(setintersection(keys(var.environment), ["COSTOPT_ACCOUNT", "COSTOPT_ACCOUNT_DOCUMENT", "COSTOPT_SERVER", "COSTOPT_STATE_DIR"])) == 0
    error_message = "environment must not set COSTOPT_ACCOUNT, COSTOPT_ACCOUNT_DOCUMENT, COSTOPT_SERVER or COSTOPT_STATE_DIR."
  }
}

variable "remote_commands" {
  description = "Whether people with the IAM permission may run commands in the daemon's container or instance, such as costopt submit (ECS Exec, Session Manager)."
  type        = bool
  default     = true
  nullable    = false
}

variable "log_retention_days" {
  description = "For how long CloudWatch keeps the daemon's log."
  type        = number
  default     = 90
  nullable    = false

  validation {
    condition     = contains([1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288, 3653], var.log_retention_days)
    error_message = "log_retention_days must be a number of days that CloudWatch knows, such as 30, 90 or 365."
  }
}

variable "alarm_emails" {
  description = "Who receives alarms; each address confirms once."
  type        = list(string)
  default     = []
  nullable    = false

  validation {
    condition     = alltrue([for address in var.alarm_emails : can(regex("^[^@\\s]+@[^@\\s]+$", address))])
    error_message = "alarm_emails must be addresses."
  }
}

variable "aws_budget" {
  description = "Whether AWS Budgets watches monthly_budget_usd too, by its own figures, which come a day late. Activate the cost allocation tag costopt:owner first."
  type        = bool
  default     = false
  nullable    = false

  validation {
    condition     = !var.aws_budget || (var.monthly_budget_usd != null && length(var.alarm_emails) > 0)
    error_message = "aws_budget needs monthly_budget_usd and alarm_emails."
  }
}

variable "tags" {
  description = "Tags of everything here. Nodes get those of the daemon."
  type        = map(string)
  default     = {}
  nullable    = false

  validation {
    condition     = !contains(keys(var.tags), "costopt:owner")
    error_message = "tags must not set costopt:owner: the daemon may end what carries it."
  }
}
