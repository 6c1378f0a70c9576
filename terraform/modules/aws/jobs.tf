# Jobs from files. They lie beside the store, where nodes cannot change them.

locals {
  deployed = "deployed"

  job_documents = merge([
    for name, job in var.jobs : {
      "${name}/job.json" = jsonencode({
        document = job.document
        policy   = job.policy
        priority = job.priority
      })
    }
  ]...)

  job_files = merge([
    for name, job in var.jobs : {
      for path in job.folder == null ? [] : fileset(job.folder, "**") :
      "${name}/files/${path}" => "${job.folder}/${path}"
    }
  ]...)
}

resource "aws_s3_object" "job" {
  for_each = local.job_documents

  bucket       = aws_s3_bucket.store.id
  key          = "${local.deployed}/${each.key}"
  content      = each.value
  content_type = "application/json"
  tags         = local.tags

  depends_on = [aws_s3_bucket_versioning.store, aws_s3_bucket_server_side_encryption_configuration.store]
}

resource "aws_s3_object" "job_file" {
  for_each = local.job_files

  bucket      = aws_s3_bucket.store.id
  key         = "${local.deployed}/${each.key}"
  source      = each.value
  source_hash = filemd5(each.value)
  tags        = local.tags

  depends_on = [aws_s3_bucket_versioning.store, aws_s3_bucket_server_side_encryption_configuration.store]
}
