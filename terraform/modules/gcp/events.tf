# Preemptions, as the audit log tells of them, for whoever wants to hear. The daemon learns of them
# from Compute Engine's operations.

resource "google_pubsub_topic" "preemptions" {
  #checkov:skip=CKV_GCP_83:encrypted with Google's key; one of the customer's must be kept and granted
  project                    = var.project
  name                       = "${var.name}-preemptions"
  labels                     = local.labels
  message_retention_duration = "3600s"

  depends_on = [google_project_service.needed]
}

resource "google_pubsub_subscription" "preemptions" {
  project                    = var.project
  name                       = "${var.name}-preemptions"
  topic                      = google_pubsub_topic.preemptions.id
  labels                     = local.labels
  message_retention_duration = "3600s"
  ack_deadline_seconds       = 60
}

resource "google_logging_project_sink" "preemptions" {
  project                = var.project
  name                   = "${var.name}-preemptions"
  destination            = "pubsub.googleapis.com/${google_pubsub_topic.preemptions.id}"
  unique_writer_identity = true
  filter                 = "resource.type=\"gce_instance\" AND protoPayload.methodName=\"compute.instances.preempted\""
}

resource "google_pubsub_topic_iam_member" "sink" {
  project = var.project
  topic   = google_pubsub_topic.preemptions.name
  role    = "roles/pubsub.publisher"
  member  = google_logging_project_sink.preemptions.writer_identity
}
