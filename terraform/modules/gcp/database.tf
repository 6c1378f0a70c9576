# A PostgreSQL database with an address in the network alone.

resource "google_compute_global_address" "database" {
  count = local.postgres ? 1 : 0

  project       = var.project
  name          = "${var.name}-database"
  purpose       = "VPC_PEERING"
  address_type  = "INTERNAL"
  prefix_length = 20
  network       = google_compute_network.this.id
}

resource "google_service_networking_connection" "database" {
  count = local.postgres ? 1 : 0

  network                 = google_compute_network.this.id
  service                 = "servicenetworking.googleapis.com"
  reserved_peering_ranges = [google_compute_global_address.database[0].name]
}

resource "google_sql_database_instance" "state" {
  #checkov:skip=CKV_GCP_6:ssl_mode refuses what is not encrypted; the check knows client certificates only
  #checkov:skip=CKV_GCP_79:the daemon takes any PostgreSQL from 13 on; this one is supported for years
  #checkov:skip=CKV_GCP_108:the daemon alone connects, from one network
  #checkov:skip=CKV_GCP_109:warnings, the default, tell more
  #checkov:skip=CKV_GCP_110:the daemon alone connects, and what it writes is a ledger
  #checkov:skip=CKV_GCP_111:the daemon alone connects, and what it writes is a ledger
  #checkov:skip=CKV2_GCP_13:the daemon alone connects, and what it writes is a ledger
  count = local.postgres ? 1 : 0

  project             = var.project
  name                = "${var.name}-state"
  region              = var.region
  database_version    = "POSTGRES_17"
  deletion_protection = !var.force_destroy

  settings {
    edition     = "ENTERPRISE"
    tier        = var.postgres_tier
    user_labels = local.labels

    backup_configuration {
      enabled                        = true
      point_in_time_recovery_enabled = true
    }

    database_flags {
      name  = "log_checkpoints"
      value = "on"
    }

    database_flags {
      name  = "log_connections"
      value = "on"
    }

    database_flags {
      name  = "log_disconnections"
      value = "on"
    }

    database_flags {
      name  = "log_lock_waits"
      value = "on"
    }

    ip_configuration {
      ipv4_enabled    = false
      private_network = google_compute_network.this.id
      ssl_mode        = "ENCRYPTED_ONLY"
    }
  }

  depends_on = [google_service_networking_connection.database]
}

resource "google_sql_database" "state" {
  count = local.postgres ? 1 : 0

  project  = var.project
  name     = "costopt"
  instance = google_sql_database_instance.state[0].name

  # Both go with their instance; Cloud SQL deletes neither while it is in use.
  deletion_policy = "ABANDON"
}

resource "google_sql_user" "daemon" {
  count = local.postgres ? 1 : 0

  project             = var.project
  name                = "costopt"
  instance            = google_sql_database_instance.state[0].name
  password_wo         = var.database_password
  password_wo_version = var.database_password_version
  deletion_policy     = "ABANDON"
}

resource "google_secret_manager_secret" "password" {
  count = local.postgres ? 1 : 0

  project   = var.project
  secret_id = "${var.name}-database-password"
  labels    = local.labels

  replication {
    auto {}
  }

  depends_on = [google_project_service.needed]
}

resource "google_secret_manager_secret_iam_member" "password" {
  count = local.postgres ? 1 : 0

  project   = var.project
  secret_id = google_secret_manager_secret.password[0].secret_id
  role      = "roles/secretmanager.secretAccessor"
  member    = google_service_account.daemon.member
}

resource "google_secret_manager_secret_version" "password" {
  count = local.postgres ? 1 : 0

  secret                 = google_secret_manager_secret.password[0].id
  secret_data_wo         = var.database_password
  secret_data_wo_version = var.database_password_version
}
