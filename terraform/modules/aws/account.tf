# The account file that the daemon reads. JSON is YAML.

locals {
  guards = var.monthly_budget_usd == null ? {} : {
    guards = merge(var.guards, { max_usd_per_month = var.monthly_budget_usd })
  }

  queues = merge(
    { (local.region) = module.events.queue_url },
    { for region, there in var.other_regions : region => there.queue_url if there.queue_url != null },
  )

  node_security_groups = merge(
    { (local.region) = local.node_security_group_ids },
    { for region, there in var.other_regions : region => there.node_security_group_ids if length(there.node_security_group_ids) > 0 },
  )

  node_regions = concat([local.region], keys(var.other_regions))

  node_subnets_of = merge(
    { (local.region) = local.own_node_subnets },
    { for region, there in var.other_regions : region => there.node_subnets },
  )

  node_subnets = merge(values(local.node_subnets_of)...)

  aws_options = merge(
    {
      regions          = local.node_regions
      instance_profile = aws_iam_instance_profile.node[local.node_role].name
      job_profiles     = { for job, role in local.job_roles : job => aws_iam_instance_profile.node[role].name }
      queues           = local.queues
      security_groups  = local.node_security_groups
      subnets          = local.node_subnets
      root_gib         = var.node_root_gib
    },
    length(var.instance_types) > 0 ? { instance_types = var.instance_types } : {},
    length(var.node_secrets) > 0 ? { secrets = var.node_secrets } : {},
    length(var.node_repositories) > 0 ? { repositories = var.node_repositories } : {},
    { for key, secrets in { job_secrets = { for job, names in local.job_secrets : job => names if length(names) > 0 } } : key => secrets if length(secrets) > 0 },
    var.placement_scores ? {} : { scored_nodes = null },
    length(var.node_image_ids) > 0 ? { image = var.node_image_ids } : {},
    length(var.node_image_ids) == 0 && var.node_image != null ? { image = var.node_image } : {},
  )

  account_document = jsonencode(merge(
    {
      kind      = "account"
      version   = 1
      owner     = local.owner
      store     = "s3://${aws_s3_bucket.store.bucket}/${var.store_prefix}"
      providers = { aws = local.aws_options }
    },
    local.guards,
  ))
}
