# What the daemon must not lose: files on EFS, or a PostgreSQL database.

resource "aws_security_group" "state" {
  name        = "${var.name}-state"
  description = "The state of the daemon, which alone reaches it"
  vpc_id      = local.vpc_id
  tags        = merge(local.tags, { Name = "${var.name}-state" })
}

resource "aws_vpc_security_group_ingress_rule" "state" {
  security_group_id            = aws_security_group.state.id
  description                  = "The daemon"
  referenced_security_group_id = aws_security_group.daemon.id
  ip_protocol                  = "tcp"
  from_port                    = local.postgres ? 5432 : 2049
  to_port                      = local.postgres ? 5432 : 2049
}

resource "aws_efs_file_system" "state" {
  #checkov:skip=CKV_AWS_184:encrypted with the key of AWS; one of the customer's costs money and needs a policy
  count = local.postgres ? 0 : 1

  encrypted        = true
  performance_mode = "generalPurpose"
  throughput_mode  = "elastic"
  tags             = merge(local.tags, { Name = "${var.name}-state" })
}

resource "aws_efs_backup_policy" "state" {
  count = local.postgres ? 0 : 1

  file_system_id = aws_efs_file_system.state[0].id

  backup_policy {
    status = "ENABLED"
  }
}

resource "aws_efs_mount_target" "state" {
  count = local.postgres ? 0 : length(local.daemon_subnet_ids)

  file_system_id  = aws_efs_file_system.state[0].id
  subnet_id       = local.daemon_subnet_ids[count.index]
  security_groups = [aws_security_group.state.id]
}

resource "aws_efs_access_point" "state" {
  count = local.postgres ? 0 : 1

  file_system_id = aws_efs_file_system.state[0].id
  tags           = merge(local.tags, { Name = "${var.name}-state" })

  posix_user {
    uid = local.user_id
    gid = local.user_id
  }

  root_directory {
    path = "/costopt"

    creation_info {
      owner_uid   = local.user_id
      owner_gid   = local.user_id
      permissions = "0700"
    }
  }
}

resource "aws_db_subnet_group" "state" {
  count = local.postgres ? 1 : 0

  name       = "${var.name}-state"
  subnet_ids = local.daemon_subnet_ids
  tags       = local.tags
}

# A name of its own for the last snapshot: that of an earlier deployment may still be there.
resource "terraform_data" "last_snapshot" {
  count = local.postgres ? 1 : 0
}

resource "aws_db_instance" "state" {
  #checkov:skip=CKV_AWS_118:a few writes a minute; what matters is in the daemon's own metrics
  #checkov:skip=CKV_AWS_133:postgres.backup_days, 7 unless said otherwise
  #checkov:skip=CKV_AWS_157:postgres.multi_az says so; it doubles the price, and nodes train on without a database
  #checkov:skip=CKV_AWS_161:its tokens live for 15 minutes, the daemon's connections longer
  #checkov:skip=CKV_AWS_293:postgres.deletion_protection, true unless said otherwise
  #checkov:skip=CKV_AWS_353:a few writes a minute; what matters is in the daemon's own metrics
  #checkov:skip=CKV2_AWS_30:the daemon alone connects, and what it writes is a ledger
  count = local.postgres ? 1 : 0

  identifier                          = "${var.name}-state"
  engine                              = "postgres"
  engine_version                      = "16"
  instance_class                      = var.postgres.instance_class
  allocated_storage                   = var.postgres.storage_gib
  max_allocated_storage               = var.postgres.storage_gib * 4
  storage_type                        = "gp3"
  storage_encrypted                   = true
  db_name                             = "costopt"
  username                            = "costopt"
  manage_master_user_password         = true
  db_subnet_group_name                = aws_db_subnet_group.state[0].name
  vpc_security_group_ids              = [aws_security_group.state.id]
  publicly_accessible                 = false
  multi_az                            = var.postgres.multi_az
  backup_retention_period             = var.postgres.backup_days
  auto_minor_version_upgrade          = true
  copy_tags_to_snapshot               = true
  iam_database_authentication_enabled = false
  enabled_cloudwatch_logs_exports     = ["postgresql"]
  deletion_protection                 = var.postgres.deletion_protection
  skip_final_snapshot                 = var.force_destroy
  final_snapshot_identifier           = var.force_destroy ? null : "${var.name}-state-${terraform_data.last_snapshot[0].id}"
  tags                                = local.tags
}
