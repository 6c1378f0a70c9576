# The bucket where nodes and daemon exchange code, messages and checkpoints.

resource "aws_s3_bucket" "store" {
  #checkov:skip=CKV_AWS_18:needs a bucket beside this one; CloudTrail tells who read what where that is wanted
  #checkov:skip=CKV_AWS_144:a checkpoint is worth its job, and a copy costs its transfer at each save
  #checkov:skip=CKV_AWS_145:encrypted with the key of S3; one of the customer's is charged for each request of each node
  #checkov:skip=CKV2_AWS_62:daemon and nodes look by themselves
  bucket        = coalesce(var.bucket_name, "${var.name}-${local.account_id}-${local.region}")
  force_destroy = var.force_destroy
  tags          = local.tags
}

resource "aws_s3_bucket_versioning" "store" {
  bucket = aws_s3_bucket.store.id

  versioning_configuration {
    status = "Enabled"
  }
}

resource "aws_s3_bucket_server_side_encryption_configuration" "store" {
  bucket = aws_s3_bucket.store.id

  rule {
    apply_server_side_encryption_by_default {
      sse_algorithm = "AES256"
    }
  }
}

resource "aws_s3_bucket_public_access_block" "store" {
  bucket = aws_s3_bucket.store.id

  block_public_acls       = true
  block_public_policy     = true
  ignore_public_acls      = true
  restrict_public_buckets = true
}

resource "aws_s3_bucket_policy" "store" {
  bucket = aws_s3_bucket.store.id
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [
      {
        Sid       = "TlsOnly"
        Effect    = "Deny"
        Principal = "*"
        Action    = "s3:*"
        Resource  = [aws_s3_bucket.store.arn, "${aws_s3_bucket.store.arn}/*"]
        Condition = { Bool = { "aws:SecureTransport" = "false" } }
      },
    ]
  })

  # S3 refuses both at once.
  depends_on = [aws_s3_bucket_public_access_block.store]
}

resource "aws_s3_bucket_lifecycle_configuration" "store" {
  bucket = aws_s3_bucket.store.id

  rule {
    id     = "old-versions"
    status = "Enabled"

    filter {}

    noncurrent_version_expiration {
      noncurrent_days = var.keep_old_versions_days
    }

    expiration {
      expired_object_delete_marker = true
    }
  }

  rule {
    id     = "unfinished-uploads"
    status = "Enabled"

    filter {}

    abort_incomplete_multipart_upload {
      days_after_initiation = 2
    }
  }

  # Parts of checkpoints that are kept for long; what is small costs more there than here.
  dynamic "rule" {
    for_each = var.cold_after_days == null ? [] : [var.cold_after_days]

    content {
      id     = "cold-checkpoints"
      status = "Enabled"

      filter {
        object_size_greater_than = 1048576
      }

      transition {
        days          = rule.value
        storage_class = "STANDARD_IA"
      }
    }
  }

  depends_on = [aws_s3_bucket_versioning.store]
}
