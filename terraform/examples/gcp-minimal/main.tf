# The daemon on one small machine in a network of its own. It observes: it plans and launches nothing.

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
  region  = var.region
}

module "costopt" {
  source = "../../modules/gcp"

  project = var.project
  region  = var.region
  image   = var.image

  # The smallest GPUs; machines with attached ones are rented only where they are named.
  instance_types = ["n1-standard-8+1xT4", "g2-standard-*"]
}
