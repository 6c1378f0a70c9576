locals {
  owner    = coalesce(var.owner, var.name)
  zone     = coalesce(var.zone, "${var.region}-a")
  labels   = merge({ costopt-deployment = var.name }, var.labels)
  regions  = distinct(concat([var.region], var.other_regions))
  vm       = var.run_on == "vm"
  postgres = var.database == "postgres"
}

resource "google_project_service" "needed" {
  for_each = toset(concat(
    [
      "cloudbilling.googleapis.com",
      "cloudresourcemanager.googleapis.com",
      "compute.googleapis.com",
      "iam.googleapis.com",
      "logging.googleapis.com",
      "monitoring.googleapis.com",
      "pubsub.googleapis.com",
      "secretmanager.googleapis.com",
      "serviceusage.googleapis.com",
      "storage.googleapis.com",
    ],
    local.vm ? [] : ["run.googleapis.com"],
    local.postgres ? ["servicenetworking.googleapis.com", "sqladmin.googleapis.com"] : [],
  ))

  project            = var.project
  service            = each.value
  disable_on_destroy = false
}
