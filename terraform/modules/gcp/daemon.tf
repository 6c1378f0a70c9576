# What runs, wherever it runs.

locals {
  user_id   = 10001
  state_dir = "/var/lib/costopt"
  run_dir   = "/run/costopt"

  # Cloud Run sends no traffic to a socket, and ends what does not listen.
  listen = local.vm ? "unix:${local.run_dir}/daemon.sock" : "0.0.0.0:8080"

  environment = {
    COSTOPT_ACCOUNT          = "${local.run_dir}/account.yaml"
    COSTOPT_ACCOUNT_DOCUMENT = local.account_document
    COSTOPT_SERVER           = "unix:${local.vm ? local.run_dir : local.state_dir}/daemon.sock"
    COSTOPT_STATE_DIR        = local.state_dir
    GOOGLE_CLOUD_PROJECT     = var.project
    HOME                     = local.run_dir
    XDG_CACHE_HOME           = "${local.run_dir}/cache"
  }

  # The password comes from Secret Manager, as libpq takes it: PGPASSWORD.
  database_url = one([
    for database in google_sql_database_instance.state :
    "postgresql://costopt@${database.private_ip_address}:5432/costopt?sslmode=require"
  ])

  daemon_arguments = concat(
    ["--mode", var.mode, "--tick", tostring(var.tick_s), "--listen", local.listen],
    # It is asked under the name that Cloud Run gives it.
    local.vm ? [] : ["--allowed-host", "*.run.app"],
    local.database_url == null ? [] : ["--database", local.database_url],
  )

  start = concat(
    ["umask 077", "printf %s \"$COSTOPT_ACCOUNT_DOCUMENT\" > \"$COSTOPT_ACCOUNT\""],
    local.submit_jobs,
    ["exec costopt daemon \"$@\""],
  )

  command = concat(["sh", "-c", join(" && ", local.start), "costopt"], local.daemon_arguments)
}

resource "google_compute_disk" "state" {
  #checkov:skip=CKV_GCP_37:encrypted with Google's key; one of the customer's must be kept and granted
  count = local.vm ? 1 : 0

  project = var.project
  name    = "${var.name}-state"
  zone    = local.zone
  type    = "pd-balanced"
  size    = 10
  labels  = local.labels

  depends_on = [google_project_service.needed]
}

resource "google_compute_resource_policy" "backups" {
  count = local.vm ? 1 : 0

  project = var.project
  name    = "${var.name}-state"
  region  = var.region

  snapshot_schedule_policy {
    schedule {
      daily_schedule {
        days_in_cycle = 1
        start_time    = "03:00"
      }
    }

    retention_policy {
      max_retention_days = 14
    }
  }

  depends_on = [google_project_service.needed]
}

resource "google_compute_disk_resource_policy_attachment" "backups" {
  count = local.vm ? 1 : 0

  project = var.project
  name    = google_compute_resource_policy.backups[0].name
  disk    = google_compute_disk.state[0].name
  zone    = local.zone
}

locals {
  machine_start = !local.vm ? "" : templatefile("${path.module}/files/cloud-init.yaml.tftpl", {
    command     = [for word in local.command : replace(replace(word, "%", "%%"), "$", "$$")]
    environment = local.environment
    image       = var.image
    run_dir     = local.run_dir
    secret      = local.postgres ? google_secret_manager_secret.password[0].id : ""
    state_dir   = local.state_dir
    user_id     = local.user_id
  })
}

# A machine reads what it is to start only when it boots: with another it is replaced, on its old disk.
resource "terraform_data" "machine_start" {
  input = sha256(local.machine_start)
}

resource "google_compute_instance" "daemon" {
  #checkov:skip=CKV_GCP_38:encrypted with Google's key; one of the customer's must be kept and granted
  count = local.vm ? 1 : 0

  project                   = var.project
  name                      = "${var.name}-daemon"
  zone                      = local.zone
  machine_type              = var.machine_type
  allow_stopping_for_update = true
  labels                    = local.labels

  boot_disk {
    initialize_params {
      image = "projects/cos-cloud/global/images/family/cos-stable"
      size  = 10
    }
  }

  attached_disk {
    source      = google_compute_disk.state[0].id
    device_name = "state"
  }

  # No address of its own: it goes out through Cloud NAT, people come in through IAP.
  network_interface {
    subnetwork = google_compute_subnetwork.nodes[var.region].id
  }

  metadata = {
    block-project-ssh-keys = "true"
    enable-oslogin         = "true"
    google-logging-enabled = "true"
    user-data              = local.machine_start
  }

  service_account {
    email  = google_service_account.daemon.email
    scopes = ["cloud-platform"]
  }

  shielded_instance_config {
    enable_integrity_monitoring = true
    enable_secure_boot          = true
    enable_vtpm                 = true
  }

  lifecycle {
    replace_triggered_by = [terraform_data.machine_start]
  }

  depends_on = [
    google_artifact_registry_repository_iam_member.daemon,
    google_compute_router_nat.out,
    google_project_iam_member.daemon,
    google_service_account_iam_member.daemon,
    google_storage_bucket_iam_member.daemon,
    google_storage_bucket_object.job,
  ]
}

resource "google_cloud_run_v2_service" "daemon" {
  count = local.vm ? 0 : 1

  project             = var.project
  name                = "${var.name}-daemon"
  location            = var.region
  ingress             = "INGRESS_TRAFFIC_INTERNAL_ONLY"
  deletion_protection = false
  labels              = local.labels

  # Callers bear a token of the daemon's own, where Cloud Run would look for one of Google's.
  invoker_iam_disabled = true

  template {
    service_account       = google_service_account.daemon.email
    execution_environment = "EXECUTION_ENVIRONMENT_GEN2"

    scaling {
      min_instance_count = 1
      max_instance_count = 1
    }

    vpc_access {
      egress = "PRIVATE_RANGES_ONLY"

      network_interfaces {
        subnetwork = google_compute_subnetwork.nodes[var.region].id
      }
    }

    containers {
      image   = var.image
      command = slice(local.command, 0, 1)
      args    = slice(local.command, 1, length(local.command))

      # It decides between requests, too.
      resources {
        cpu_idle = false
        limits   = { cpu = "1", memory = "2Gi" }
      }

      ports {
        container_port = 8080
      }

      dynamic "env" {
        for_each = local.environment

        content {
          name  = env.key
          value = env.value
        }
      }

      env {
        name = "PGPASSWORD"

        value_source {
          secret_key_ref {
            secret  = google_secret_manager_secret.password[0].secret_id
            version = "latest"
          }
        }
      }

      liveness_probe {
        http_get {
          path = "/healthz"
        }
      }

      volume_mounts {
        name       = "run"
        mount_path = local.run_dir
      }

      volume_mounts {
        name       = "state"
        mount_path = local.state_dir
      }
    }

    volumes {
      name = "run"

      empty_dir {
        medium     = "MEMORY"
        size_limit = "64Mi"
      }
    }

    volumes {
      name = "state"

      empty_dir {
        medium     = "MEMORY"
        size_limit = "256Mi"
      }
    }
  }

  depends_on = [
    google_project_iam_member.daemon,
    google_secret_manager_secret_iam_member.password,
    google_secret_manager_secret_version.password,
    google_service_account_iam_member.daemon,
    google_storage_bucket_iam_member.daemon,
    google_storage_bucket_object.job,
  ]
}
