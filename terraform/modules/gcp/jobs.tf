# Jobs from files, as costopt submit --from takes them. They lie beside the store, where nodes cannot
# change them.

locals {
  deployed = "deployed"

  # The files of each job's folder, by path: a file's key is that of its contents.
  job_contents = {
    for name, job in var.jobs : name => {
      for path in job.folder == null ? [] : fileset(job.folder, "**") : path => "files/${filemd5("${job.folder}/${path}")}"
    }
  }

  job_documents = {
    for name, job in var.jobs : name => jsonencode({
      document = job.document
      policy   = job.policy
      priority = job.priority
      files    = local.job_contents[name]
    })
  }

  job_files = merge([
    for name, files in local.job_contents : {
      for path, key in files : "${name}/${key}" => "${var.jobs[name].folder}/${path}"...
    }
  ]...)

  # It waits for the daemon beside which it is started.
  submit_jobs = length(var.jobs) == 0 ? [] : [
    "{ costopt submit --from gs://${google_storage_bucket.store.name}/${local.deployed} --into ${local.state_dir}/${local.deployed} --patience 10m & }"
  ]
}

resource "google_storage_bucket_object" "job" {
  for_each = local.job_documents

  bucket       = google_storage_bucket.store.name
  name         = "${local.deployed}/${each.key}/job.json"
  content      = each.value
  content_type = "application/json"

  depends_on = [google_storage_bucket_object.job_file]
}

resource "google_storage_bucket_object" "job_file" {
  for_each = local.job_files

  bucket = google_storage_bucket.store.name
  name   = "${local.deployed}/${each.key}"
  source = each.value[0]
}
