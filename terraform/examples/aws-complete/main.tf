# The daemon in two regions, with a budget and jobs from files; on Fargate or on EC2, over SQLite or
# PostgreSQL.

terraform {
  required_version = ">= 1.9"

  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = ">= 5.80, < 6.0"
    }
  }
}

provider "aws" {
  region = "us-east-1"
}

provider "aws" {
  alias  = "west"
  region = "us-west-2"
}

locals {
  finetune = "${path.module}/../../../examples/finetune"
}

module "events_west" {
  source = "../../modules/aws/modules/events"

  providers = { aws = aws.west }
  name      = var.name
}

module "costopt" {
  source = "../../modules/aws"

  name               = var.name
  owner              = "research"
  image              = var.image
  mode               = "enforce"
  monthly_budget_usd = 2000
  guards             = { max_usd_per_hour = 50, max_nodes = 16 }

  run_on   = var.run_on
  database = var.database
  postgres = { deletion_protection = false }

  instance_types    = ["g4dn.*", "g5.*", "g6*"]
  node_image_ids    = var.node_image_ids
  instance_image_id = var.instance_image_id
  other_regions     = { us-west-2 = { queue_url = module.events_west.queue_url } }

  jobs = {
    finetune = {
      document = file("${local.finetune}/job.yaml")
      policy   = file("${path.module}/policies/frugal.yaml")
      folder   = local.finetune
    }
  }

  alarm_emails  = var.alarm_emails
  aws_budget    = length(var.alarm_emails) > 0
  force_destroy = var.force_destroy
  environment   = var.environment
  tags          = { team = "research" }
}
