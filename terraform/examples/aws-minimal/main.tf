# The daemon on Fargate in a network of its own. It observes: it plans and launches nothing.

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
  region = var.region
}

module "costopt" {
  source = "../../modules/aws"

  image       = var.image
  environment = var.environment
}
