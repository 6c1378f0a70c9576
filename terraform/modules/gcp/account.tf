# The account file that the daemon reads. JSON is YAML.

locals {
  guards = var.monthly_budget_usd == null ? {} : {
    guards = merge(var.guards, { max_usd_per_month = var.monthly_budget_usd })
  }

  gcp_options = merge(
    {
      project              = var.project
      regions              = local.regions
      service_account      = google_service_account.node.email
      job_service_accounts = { for job, account in google_service_account.job : job => account.email }
      network              = google_compute_network.this.id
      subnetworks          = { for region, subnet in google_compute_subnetwork.nodes : region => subnet.id }
      external_ip          = var.node_external_ip
    },
    length(var.instance_types) > 0 ? { instance_types = var.instance_types } : {},
  )

  account_document = jsonencode(merge(
    {
      kind      = "account"
      version   = 1
      owner     = local.owner
      store     = "gs://${google_storage_bucket.store.name}/${var.store_prefix}"
      providers = { gcp = local.gcp_options }
    },
    local.guards,
  ))
}
