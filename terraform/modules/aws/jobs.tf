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

  submit_jobs = ["costopt", "submit", "--from", "s3://${aws_s3_bucket.store.bucket}/${local.deployed}", "--into", "${local.state_dir}/${local.deployed}"]
}

resource "aws_s3_object" "job" {
  for_each = local.job_documents

  bucket       = aws_s3_bucket.store.id
  key          = "${local.deployed}/${each.key}/job.json"
  content      = each.value
  content_type = "application/json"
  tags         = local.tags

  depends_on = [
    aws_s3_bucket_server_side_encryption_configuration.store,
    aws_s3_bucket_versioning.store,
    aws_s3_object.job_file,
  ]
}

resource "aws_s3_object" "job_file" {
  for_each = local.job_files

  bucket = aws_s3_bucket.store.id
  key    = "${local.deployed}/${each.key}"
  source = each.value[0]
  tags   = local.tags

  depends_on = [aws_s3_bucket_versioning.store, aws_s3_bucket_server_side_encryption_configuration.store]
}
