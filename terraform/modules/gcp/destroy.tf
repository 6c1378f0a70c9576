# Nodes outlive a daemon that is gone, and would cost money that nobody sees.

resource "terraform_data" "nodes" {
  count = var.refuse_destroy_with_nodes ? 1 : 0

  input = {
    command = "${abspath(path.module)}/files/refuse_destroy.sh"
    owner   = local.owner
    project = var.project
  }

  provisioner "local-exec" {
    when    = destroy
    command = "sh ${self.input.command} ${self.input.owner} ${self.input.project}"
  }

  # So this is destroyed before everything that it protects.
  depends_on = [
    google_cloud_run_v2_service.daemon,
    google_compute_firewall.gang,
    google_compute_instance.daemon,
    google_compute_router_nat.out,
    google_storage_bucket_iam_member.node_reads,
    google_storage_bucket_iam_member.node_writes,
  ]
}
