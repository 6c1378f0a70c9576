# The bucket where nodes and daemon exchange code, messages and checkpoints.

resource "google_storage_bucket" "store" {
  #checkov:skip=CKV_GCP_62:needs a bucket beside this one; Cloud Audit Logs tell who read what where that is wanted
  project                     = var.project
  name                        = coalesce(var.bucket_name, "${var.project}-${var.name}")
  location                    = var.region
  uniform_bucket_level_access = true
  public_access_prevention    = "enforced"
  force_destroy               = var.force_destroy
  labels                      = local.labels

  versioning {
    enabled = true
  }

  # Versions keep what was deleted. Google would keep these, too, for a week more, and charge for it.
  soft_delete_policy {
    retention_duration_seconds = 0
  }

  lifecycle_rule {
    condition {
      days_since_noncurrent_time = var.keep_old_versions_days
    }

    action {
      type = "Delete"
    }
  }

  lifecycle_rule {
    condition {
      age = 2
    }

    action {
      type = "AbortIncompleteMultipartUpload"
    }
  }

  # Parts of checkpoints that are kept for long, by how their names end.
  dynamic "lifecycle_rule" {
    for_each = var.cold_after_days == null ? [] : [var.cold_after_days]

    content {
      condition {
        age                   = lifecycle_rule.value
        matches_storage_class = ["STANDARD"]
        matches_suffix        = [".bin"]
      }

      action {
        type          = "SetStorageClass"
        storage_class = "NEARLINE"
      }
    }
  }

  depends_on = [google_project_service.needed]
}
