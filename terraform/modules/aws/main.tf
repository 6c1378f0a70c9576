data "aws_caller_identity" "current" {}
data "aws_partition" "current" {}
data "aws_region" "current" {}

locals {
  account_id = data.aws_caller_identity.current.account_id
  arn        = "arn:${data.aws_partition.current.partition}"
  region     = data.aws_region.current.name

  owner       = coalesce(var.owner, var.name)
  node_role   = "${var.name}-node"
  daemon_role = "${var.name}-daemon"
  tags        = merge({ "costopt:deployment" = var.name }, var.tags)

  fargate  = var.run_on == "fargate"
  postgres = var.database == "postgres"
}

module "events" {
  source = "./modules/events"

  name = var.name
  tags = local.tags
}
