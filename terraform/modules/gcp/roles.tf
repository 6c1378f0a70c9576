# The permissions that `costopt doctor gcp` names; a test holds them together. Google's conditions do
# not see labels of machines and see names: of machines and disks, the daemon's role counts for those
# whose names begin as costopt's do, of whatever owner.

locals {
  store_permissions = [
    "storage.multipartUploads.abort",
    "storage.multipartUploads.create",
    "storage.objects.create",
    "storage.objects.delete",
    "storage.objects.get",
    "storage.objects.list",
    "storage.objects.update",
  ]

  # Of these, what nodes may do with what they only read.
  read_permissions = ["storage.objects.get", "storage.objects.list"]

  daemon_permissions = [
    "compute.acceleratorTypes.list",
    "compute.advice.capacity",
    "compute.advice.capacityHistory",
    "compute.disks.create",
    "compute.disks.delete",
    "compute.disks.list",
    "compute.disks.setLabels",
    "compute.futureReservations.list",
    "compute.images.get",
    "compute.images.getFromFamily",
    "compute.images.useReadOnly",
    "compute.instanceTemplates.delete",
    "compute.instanceTemplates.list",
    "compute.instances.create",
    "compute.instances.delete",
    "compute.instances.list",
    "compute.instances.setLabels",
    "compute.instances.setMetadata",
    "compute.instances.setServiceAccount",
    "compute.machineTypes.list",
    "compute.networks.use",
    "compute.networks.useExternalIp",
    "compute.projects.get",
    "compute.regionOperations.get",
    "compute.regions.get",
    "compute.reservations.list",
    "compute.resourcePolicies.create",
    "compute.resourcePolicies.delete",
    "compute.resourcePolicies.list",
    "compute.resourcePolicies.use",
    "compute.subnetworks.use",
    "compute.subnetworks.useExternalIp",
    "compute.zoneOperations.get",
    "compute.zoneOperations.list",
    "serviceusage.services.get",
  ]

  daemon_condition = join(" || ", [
    "(resource.type != 'compute.googleapis.com/Instance' && resource.type != 'compute.googleapis.com/Disk')",
    "resource.name.extract('/instances/{name}').startsWith('costopt-')",
    "resource.name.extract('/disks/{name}').startsWith('costopt-')",
  ])

  # On the bucket.
  find_permissions = ["storage.buckets.get"]

  # On the nodes' account alone.
  act_as_permissions = ["iam.serviceAccounts.actAs"]

  role_id = replace(var.name, "-", "_")

  # LOCATION-docker.pkg.dev/PROJECT/REPOSITORY, where the image is in Artifact Registry.
  image_repositories = regexall("^[a-z0-9-]+-docker\\.pkg\\.dev/[^/]+/[^/]+", var.image)

  # What nodes read and write, as conditions: by job of the module, and for all others, "". Names of
  # objects are listed for the whole bucket or not at all.
  objects = "projects/_/buckets/${google_storage_bucket.store.name}/objects/${var.store_prefix}"
  own = {
    for job in keys(var.jobs) : job => [for folder in ["checkpoints", "jobs"] : "${local.objects}/${folder}/${job}/"]
  }
  read_folders = merge(
    { "" = ["${local.objects}/"] },
    { for job, folders in local.own : job => concat(folders, ["${local.objects}/payloads/${job}/"]) },
  )
  node_reads = {
    for job, folders in local.read_folders : job => join(" || ", concat(
      ["resource.type != 'storage.googleapis.com/Object'"],
      [for folder in folders : "resource.name.startsWith('${folder}')"],
    ))
  }
  node_writes = merge(
    { "" = "resource.name.startsWith('${local.objects}/') && !resource.name.startsWith('${local.objects}/payloads/')" },
    { for job, folders in local.own : job => join(" || ", [for folder in folders : "resource.name.startsWith('${folder}')"]) },
  )
  nodes = merge({ "" = google_service_account.node }, google_service_account.job)

  # What nodes read beside the store, by job, and for all others, "": each secret by its project, if
  # it is named, and its name, without a version.
  job_secrets = {
    for name, job in var.jobs : name => [
      for secret in try(values(yamldecode(job.document).secrets), []) : secret.gcp if try(secret.gcp, null) != null
    ]
  }
  secrets = merge([
    for job, names in merge({ "" = var.node_secrets }, local.job_secrets) : {
      for name in names : "${job}:${name}" => { job = job, parts = regex("^(?:projects/([^/]+)/secrets/)?([^/]+)", name) }
    }
  ]...)
  pulls = merge([
    for job in concat([""], keys(var.jobs)) : {
      for name in var.node_repositories : "${job}:${name}" => { job = job, parts = split("/", name) }
    }
  ]...)
}

resource "google_service_account" "daemon" {
  project      = var.project
  account_id   = "${var.name}-daemon"
  display_name = "The costopt daemon"

  depends_on = [google_project_service.needed]
}

resource "google_service_account" "node" {
  project      = var.project
  account_id   = "${var.name}-node"
  display_name = "costopt's training nodes"

  depends_on = [google_project_service.needed]
}

# An account's id has 30 characters, a job's name may have more.
resource "google_service_account" "job" {
  for_each = var.jobs

  project      = var.project
  account_id   = "${var.name}-${substr(sha256(each.key), 0, 8)}"
  display_name = "costopt's nodes of job ${each.key}"

  depends_on = [google_project_service.needed]
}

resource "google_project_iam_custom_role" "daemon" {
  project     = var.project
  role_id     = "${local.role_id}_daemon"
  title       = "${var.name} daemon"
  description = "Starts, lists and deletes nodes"
  permissions = local.daemon_permissions

  depends_on = [google_project_service.needed]
}

resource "google_project_iam_custom_role" "store" {
  project     = var.project
  role_id     = "${local.role_id}_store"
  title       = "${var.name} store"
  description = "Reads and writes the store; granted on its bucket alone"
  permissions = local.store_permissions

  depends_on = [google_project_service.needed]
}

resource "google_project_iam_custom_role" "read" {
  project     = var.project
  role_id     = "${local.role_id}_read"
  title       = "${var.name} reads its store"
  description = "Granted on the store's bucket alone"
  permissions = local.read_permissions

  depends_on = [google_project_service.needed]
}

resource "google_project_iam_custom_role" "find" {
  project     = var.project
  role_id     = "${local.role_id}_find"
  title       = "${var.name} finds its store"
  description = "Granted on the store's bucket alone"
  permissions = local.find_permissions

  depends_on = [google_project_service.needed]
}

resource "google_project_iam_custom_role" "act_as" {
  project     = var.project
  role_id     = "${local.role_id}_act_as"
  title       = "${var.name} gives nodes their account"
  description = "Granted on the nodes' service account alone"
  permissions = local.act_as_permissions

  depends_on = [google_project_service.needed]
}

resource "google_project_iam_member" "daemon" {
  project = var.project
  role    = google_project_iam_custom_role.daemon.id
  member  = google_service_account.daemon.member

  condition {
    title       = "costopt machines"
    description = "Of machines and disks, those that costopt made"
    expression  = local.daemon_condition
  }
}

resource "google_project_iam_member" "daemon_log" {
  project = var.project
  role    = "roles/logging.logWriter"
  member  = google_service_account.daemon.member
}

resource "google_service_account_iam_member" "daemon" {
  for_each = local.nodes

  service_account_id = each.value.name
  role               = google_project_iam_custom_role.act_as.id
  member             = google_service_account.daemon.member
}

resource "google_storage_bucket_iam_member" "daemon" {
  bucket = google_storage_bucket.store.name
  role   = google_project_iam_custom_role.store.id
  member = google_service_account.daemon.member
}

resource "google_storage_bucket_iam_member" "daemon_find" {
  bucket = google_storage_bucket.store.name
  role   = google_project_iam_custom_role.find.id
  member = google_service_account.daemon.member
}

resource "google_storage_bucket_iam_member" "node_reads" {
  for_each = local.nodes

  bucket = google_storage_bucket.store.name
  role   = google_project_iam_custom_role.read.id
  member = each.value.member

  condition {
    title      = "reads"
    expression = local.node_reads[each.key]
  }
}

resource "google_storage_bucket_iam_member" "node_writes" {
  for_each = local.nodes

  bucket = google_storage_bucket.store.name
  role   = google_project_iam_custom_role.store.id
  member = each.value.member

  condition {
    title      = "writes"
    expression = local.node_writes[each.key]
  }
}

# A machine fetches the daemon's image as the daemon; Cloud Run has an agent of its own for that.
resource "google_artifact_registry_repository_iam_member" "daemon" {
  for_each = toset(local.vm ? local.image_repositories : [])

  project    = split("/", each.value)[1]
  location   = trimsuffix(split("/", each.value)[0], "-docker.pkg.dev")
  repository = split("/", each.value)[2]
  role       = "roles/artifactregistry.reader"
  member     = google_service_account.daemon.member
}

resource "google_secret_manager_secret_iam_member" "node" {
  for_each = local.secrets

  project   = coalesce(each.value.parts[0], var.project)
  secret_id = each.value.parts[1]
  role      = "roles/secretmanager.secretAccessor"
  member    = local.nodes[each.value.job].member
}

resource "google_artifact_registry_repository_iam_member" "node" {
  for_each = local.pulls

  project    = each.value.parts[1]
  location   = each.value.parts[3]
  repository = each.value.parts[5]
  role       = "roles/artifactregistry.reader"
  member     = local.nodes[each.value.job].member
}
