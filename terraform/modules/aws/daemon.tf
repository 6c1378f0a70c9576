# What runs, wherever it runs: the daemon, and beside it what hands in jobs and writes metrics.

locals {
  user_id   = 10001
  state_dir = "/var/lib/costopt"
  run_dir   = "/run/costopt"
  server    = "unix:${local.run_dir}/daemon.sock"

  environment = merge(
    var.environment,
    {
      AWS_DEFAULT_REGION       = local.region
      AWS_REGION               = local.region
      COSTOPT_ACCOUNT          = "${local.run_dir}/account.yaml"
      COSTOPT_ACCOUNT_DOCUMENT = local.account_document
      COSTOPT_SERVER           = local.server
      COSTOPT_STATE_DIR        = local.state_dir
      HOME                     = local.run_dir
      TMPDIR                   = local.run_dir
      XDG_CACHE_HOME           = "${local.run_dir}/cache"
    },
  )

  # The password comes from the secret, as libpq takes it: PGPASSWORD.
  database_url = one([
    for database in aws_db_instance.state :
    "postgresql://${database.username}@${database.address}:${database.port}/${database.db_name}?sslmode=require"
  ])

  daemon_arguments = concat(
    [
      "--mode", var.mode,
      "--tick", tostring(var.tick_s),
      "--listen", local.server,
    ],
    local.database_url == null ? [] : ["--database", local.database_url],
  )

  commands = merge(
    {
      daemon  = concat(["sh", "-c", "umask 077 && printf %s \"$COSTOPT_ACCOUNT_DOCUMENT\" > \"$COSTOPT_ACCOUNT\" && exec costopt daemon \"$@\"", "costopt"], local.daemon_arguments)
      metrics = ["python3", "-c", file("${path.module}/files/metrics_log.py")]
    },
    length(var.jobs) > 0 ? { jobs = local.submit_jobs } : {},
  )

  health_command = ["python3", "-c", file("${path.module}/files/healthy.py")]
}

resource "aws_cloudwatch_log_group" "daemon" {
  #checkov:skip=CKV_AWS_158:encrypted with the key of AWS; one of the customer's costs money and needs a policy
  #checkov:skip=CKV_AWS_338:log_retention_days says how long
  name              = "/costopt/${var.name}"
  retention_in_days = var.log_retention_days
  tags              = local.tags
}
