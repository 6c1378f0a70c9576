# A network of its own, in which nothing is reached from outside.

locals {
  cidrs = var.subnet_cidrs != null ? var.subnet_cidrs : {
    for index, region in local.regions : region => cidrsubnet("10.80.0.0/12", 8, index)
  }
}

resource "google_compute_network" "this" {
  project                 = var.project
  name                    = var.name
  auto_create_subnetworks = false

  depends_on = [google_project_service.needed]
}

resource "google_compute_subnetwork" "nodes" {
  for_each = toset(local.regions)

  project                  = var.project
  name                     = "${var.name}-${each.value}"
  region                   = each.value
  network                  = google_compute_network.this.id
  ip_cidr_range            = local.cidrs[each.value]
  private_ip_google_access = true

  log_config {
    aggregation_interval = "INTERVAL_10_MIN"
    flow_sampling        = 0.1
    metadata             = "INCLUDE_ALL_METADATA"
  }
}

resource "google_compute_router" "out" {
  for_each = toset(local.regions)

  project = var.project
  name    = "${var.name}-${each.value}"
  region  = each.value
  network = google_compute_network.this.id
}

resource "google_compute_router_nat" "out" {
  for_each = toset(local.regions)

  project                            = var.project
  name                               = "${var.name}-${each.value}"
  region                             = each.value
  router                             = google_compute_router.out[each.value].name
  nat_ip_allocate_option             = "AUTO_ONLY"
  source_subnetwork_ip_ranges_to_nat = "ALL_SUBNETWORKS_ALL_IP_RANGES"
}

# The nodes of a gang reach each other; they are known by their service account.
resource "google_compute_firewall" "gang" {
  for_each = local.nodes

  project                 = var.project
  name                    = each.key == "" ? "${var.name}-gang" : "${each.value.account_id}-gang"
  network                 = google_compute_network.this.id
  direction               = "INGRESS"
  source_service_accounts = [each.value.email]
  target_service_accounts = [each.value.email]

  allow {
    protocol = "all"
  }
}

# People with the IAM permission reach the daemon's machine through Identity-Aware Proxy.
resource "google_compute_firewall" "iap" {
  project                 = var.project
  name                    = "${var.name}-iap"
  network                 = google_compute_network.this.id
  direction               = "INGRESS"
  source_ranges           = ["35.235.240.0/20"]
  target_service_accounts = [google_service_account.daemon.email]

  allow {
    protocol = "tcp"
    ports    = ["22"]
  }
}
