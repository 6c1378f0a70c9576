# The daemon on one small instance, which an auto scaling group replaces when it fails.

locals {
  instance_start = local.fargate ? "" : templatefile("${path.module}/files/instance.sh.tftpl", {
    access_point_id = try(aws_efs_access_point.state[0].id, "")
    commands        = { for name, command in local.commands : name => join(" ", [for word in command : "'${replace(word, "'", "'\\''")}'"]) }
    environment     = local.environment
    file_system_id  = try(aws_efs_file_system.state[0].id, "")
    image           = var.image
    log_group       = aws_cloudwatch_log_group.daemon.name
    region          = local.region
    run_dir         = local.run_dir
    secret_arn      = local.database_secret_arn == null ? "" : local.database_secret_arn
    state_dir       = local.state_dir
    user_id         = local.user_id
  })
}

resource "aws_launch_template" "daemon" {
  count = local.fargate ? 0 : 1

  name_prefix   = "${var.name}-daemon-"
  image_id      = coalesce(var.instance_image_id, "resolve:ssm:/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64")
  instance_type = var.instance_type
  # Compressed, for EC2 takes 16 KiB.
  user_data              = base64gzip(local.instance_start)
  vpc_security_group_ids = [aws_security_group.daemon.id]
  update_default_version = true
  tags                   = local.tags

  iam_instance_profile {
    name = aws_iam_instance_profile.daemon[0].name
  }

  block_device_mappings {
    device_name = "/dev/xvda"

    ebs {
      encrypted   = true
      volume_size = 20
      volume_type = "gp3"
    }
  }

  # Containers share the instance's network, so the metadata service is one hop away for them, too.
  metadata_options {
    http_endpoint               = "enabled"
    http_put_response_hop_limit = 1
    http_tokens                 = "required"
  }

  tag_specifications {
    resource_type = "instance"
    tags          = merge(local.tags, { Name = "${var.name}-daemon" })
  }
}

resource "aws_autoscaling_group" "daemon" {
  count = local.fargate ? 0 : 1

  name                      = "${var.name}-daemon"
  min_size                  = 0
  max_size                  = 1
  desired_capacity          = 1
  vpc_zone_identifier       = local.daemon_subnet_ids
  health_check_type         = "EC2"
  health_check_grace_period = 300
  wait_for_capacity_timeout = "0"

  launch_template {
    id      = aws_launch_template.daemon[0].id
    version = aws_launch_template.daemon[0].latest_version
  }

  # The old one ends before the new one starts: a file on EFS has one writer.
  instance_refresh {
    strategy = "Rolling"

    preferences {
      min_healthy_percentage = 0
    }
  }

  dynamic "tag" {
    for_each = local.tags

    content {
      key                 = tag.key
      value               = tag.value
      propagate_at_launch = false
    }
  }

  depends_on = [
    aws_efs_mount_target.state,
    aws_iam_role_policy.daemon,
    aws_iam_role_policy.deployment,
    aws_route.private,
    aws_s3_object.job,
    aws_s3_object.job_file,
    aws_vpc_security_group_egress_rule.daemon,
    aws_vpc_security_group_ingress_rule.state,
  ]
}
