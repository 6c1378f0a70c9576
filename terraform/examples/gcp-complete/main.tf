# The daemon on Cloud Run over PostgreSQL, in two regions, with a budget.

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
  instance_types     = ["g2-*", "a2-*"]

  run_on            = "cloud_run"
  database          = "postgres"
  database_password = var.database_password

  alarm_emails = var.alarm_emails
  labels       = { team = "research" }
}
