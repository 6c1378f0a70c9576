# Nodes outlive a daemon that is gone, and would cost money that nobody sees.

resource "terraform_data" "nodes" {
  count = var.refuse_destroy_with_nodes ? 1 : 0

  input = {
    command = "${abspath(path.module)}/files/refuse_destroy.sh"
    owner   = local.owner
    regions = join(" ", concat([local.region], keys(var.other_regions)))
  }

  provisioner "local-exec" {
    when    = destroy
    command = "sh ${self.input.command} ${self.input.owner} ${self.input.regions}"
  }

  # So this is destroyed before everything that it protects.
  depends_on = [
    aws_autoscaling_group.daemon,
    aws_cloudwatch_metric_alarm.daemon,
    aws_ecs_service.daemon,
    aws_iam_instance_profile.node,
    aws_s3_bucket_lifecycle_configuration.store,
    aws_s3_bucket_policy.store,
    aws_vpc_security_group_egress_rule.nodes_gang,
    aws_vpc_security_group_egress_rule.nodes_out,
    aws_vpc_security_group_ingress_rule.nodes,
    aws_vpc_endpoint.s3,
    module.events,
  ]
}
