output "account_document" {
  description = "The account file that the daemon reads, for costopt doctor and costopt plan on another machine."
  value       = local.account_document
}

output "store" {
  description = "Where code, messages and checkpoints lie."
  value       = "gs://${google_storage_bucket.store.name}/${var.store_prefix}"
}

output "bucket" {
  description = "The store's bucket."
  value       = google_storage_bucket.store.name
}

output "daemon_service_account" {
  description = "The account that the daemon runs with."
  value       = google_service_account.daemon.email
}

output "node_service_account" {
  description = "The account of the nodes of jobs that were submitted later: it reads the whole store."
  value       = google_service_account.node.email
}

output "job_service_accounts" {
  description = "The accounts that nodes of the module's jobs run with, by job: each reaches its job's part of the store. Let them read data that lie elsewhere."
  value       = { for job, account in google_service_account.job : job => account.email }
}

output "preemptions_subscription" {
  description = "The subscription that receives preemptions, for other programs."
  value       = google_pubsub_subscription.preemptions.id
}

output "environment" {
  description = "The environment that the daemon runs in, without secrets."
  value       = local.environment
}

output "command" {
  description = "The daemon's command."
  value       = local.command
}

output "shell" {
  description = "How to talk to the daemon. Null: it is on Cloud Run, and answers in the network alone."
  value       = local.vm ? "gcloud compute ssh ${var.name}-daemon --project ${var.project} --zone ${local.zone} --tunnel-through-iap --command 'sudo docker exec daemon costopt status'" : null
}

output "url" {
  description = "Where the daemon answers in the network, for --server. Null: it is on a machine."
  value       = one(google_cloud_run_v2_service.daemon[*].uri)
}
