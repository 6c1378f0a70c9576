# The daemon on Cloud Run over PostgreSQL, in two regions, with a budget and jobs from files.

terraform {
  required_version = ">= 1.11"

  required_providers {
    google = {
      source  = "hashicorp/google"
      version = ">= 6.35, < 8.0"
    }
  }
}

provider "google" {
  project = var.project
  region  = "us-central1"
}

locals {
  finetune = "${path.module}/../../../examples/finetune"
}

module "costopt" {
  source = "../../modules/gcp"

  project            = var.project
  name               = "costopt-research"
  owner              = "research"
  region             = "us-central1"
  other_regions      = ["europe-west4"]
  image              = var.image
  mode               = "enforce"
  monthly_budget_usd = 2000
  guards             = { max_usd_per_hour = 50, max_nodes = 16 }
  instance_types     = ["n1-standard-8+1xT4", "g2-*", "a2-*"]

  run_on            = "cloud_run"
  database          = "postgres"
  database_password = var.database_password

  jobs = {
    finetune = {
      document = file("${local.finetune}/job.yaml")
      policy   = file("${path.module}/policies/frugal.yaml")
      folder   = local.finetune
    }
  }

  alarm_emails = var.alarm_emails
  labels       = { team = "research" }
}
