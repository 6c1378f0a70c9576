# A network of its own: private subnets in every zone, one NAT gateway, S3 past it.

data "aws_availability_zones" "here" {
  state = "available"

  filter {
    name   = "opt-in-status"
    values = ["opt-in-not-required"]
  }
}

locals {
  new_vpc = var.vpc == null
  found   = data.aws_availability_zones.here.names
  zones   = local.new_vpc ? slice(local.found, 0, min(var.max_zones, length(local.found))) : []

  vpc_id                  = local.new_vpc ? one(aws_vpc.this[*].id) : var.vpc.id
  daemon_subnet_ids       = local.new_vpc ? slice(aws_subnet.private[*].id, 0, min(2, length(local.zones))) : var.vpc.subnet_ids
  own_node_subnets        = local.new_vpc ? { for subnet in aws_subnet.private : subnet.availability_zone_id => subnet.id } : var.vpc.node_subnets
  node_security_group_ids = local.new_vpc ? aws_security_group.nodes[*].id : var.vpc.node_security_group_ids
}

resource "aws_vpc" "this" {
  #checkov:skip=CKV2_AWS_11:flow logs are charged by volume, and gangs talk much; add them to the output vpc_id
  count = local.new_vpc ? 1 : 0

  cidr_block           = var.vpc_cidr
  enable_dns_hostnames = true
  enable_dns_support   = true
  tags                 = merge(local.tags, { Name = var.name })
}

# Nothing may use what AWS makes by itself.
resource "aws_default_security_group" "unused" {
  count = local.new_vpc ? 1 : 0

  vpc_id = aws_vpc.this[0].id
  tags   = merge(local.tags, { Name = "${var.name}-unused" })
}

resource "aws_subnet" "private" {
  count = length(local.zones)

  vpc_id            = aws_vpc.this[0].id
  availability_zone = local.zones[count.index]
  cidr_block        = cidrsubnet(var.vpc_cidr, 4, count.index)
  tags              = merge(local.tags, { Name = "${var.name}-private-${local.zones[count.index]}" })
}

resource "aws_subnet" "public" {
  count = local.new_vpc ? 1 : 0

  vpc_id            = aws_vpc.this[0].id
  availability_zone = local.zones[0]
  cidr_block        = cidrsubnet(var.vpc_cidr, 8, 255)
  tags              = merge(local.tags, { Name = "${var.name}-public" })
}

resource "aws_internet_gateway" "this" {
  count = local.new_vpc ? 1 : 0

  vpc_id = aws_vpc.this[0].id
  tags   = merge(local.tags, { Name = var.name })
}

resource "aws_eip" "nat" {
  count = local.new_vpc ? 1 : 0

  domain = "vpc"
  tags   = merge(local.tags, { Name = "${var.name}-nat" })
}

resource "aws_nat_gateway" "this" {
  count = local.new_vpc ? 1 : 0

  allocation_id = aws_eip.nat[0].id
  subnet_id     = aws_subnet.public[0].id
  tags          = merge(local.tags, { Name = var.name })

  depends_on = [aws_internet_gateway.this]
}

resource "aws_route_table" "public" {
  count = local.new_vpc ? 1 : 0

  vpc_id = aws_vpc.this[0].id
  tags   = merge(local.tags, { Name = "${var.name}-public" })
}

resource "aws_route" "public" {
  count = local.new_vpc ? 1 : 0

  route_table_id         = aws_route_table.public[0].id
  destination_cidr_block = "0.0.0.0/0"
  gateway_id             = aws_internet_gateway.this[0].id
}

resource "aws_route_table_association" "public" {
  count = local.new_vpc ? 1 : 0

  subnet_id      = aws_subnet.public[0].id
  route_table_id = aws_route_table.public[0].id
}

resource "aws_route_table" "private" {
  count = local.new_vpc ? 1 : 0

  vpc_id = aws_vpc.this[0].id
  tags   = merge(local.tags, { Name = "${var.name}-private" })
}

resource "aws_route" "private" {
  count = local.new_vpc ? 1 : 0

  route_table_id         = aws_route_table.private[0].id
  destination_cidr_block = "0.0.0.0/0"
  nat_gateway_id         = aws_nat_gateway.this[0].id
}

resource "aws_route_table_association" "private" {
  count = length(local.zones)

  subnet_id      = aws_subnet.private[count.index].id
  route_table_id = aws_route_table.private[0].id
}

# Checkpoints go past the NAT gateway, which charges for each gigabyte.
resource "aws_vpc_endpoint" "s3" {
  count = local.new_vpc ? 1 : 0

  vpc_id            = aws_vpc.this[0].id
  service_name      = "com.amazonaws.${local.region}.s3"
  vpc_endpoint_type = "Gateway"
  route_table_ids   = [aws_route_table.private[0].id]
  tags              = merge(local.tags, { Name = "${var.name}-s3" })
}

resource "aws_security_group" "nodes" {
  #checkov:skip=CKV2_AWS_5:the daemon attaches it to the nodes that it launches
  count = local.new_vpc ? 1 : 0

  name        = "${var.name}-nodes"
  description = "Training nodes, which reach each other and the outside"
  vpc_id      = local.vpc_id
  tags        = merge(local.tags, { Name = "${var.name}-nodes" })
}

resource "aws_vpc_security_group_ingress_rule" "nodes" {
  count = local.new_vpc ? 1 : 0

  security_group_id            = aws_security_group.nodes[0].id
  description                  = "The nodes of a gang; EFA needs all traffic within the group"
  referenced_security_group_id = aws_security_group.nodes[0].id
  ip_protocol                  = "-1"
}

# EFA counts as outgoing only what names the group itself.
resource "aws_vpc_security_group_egress_rule" "nodes_gang" {
  count = local.new_vpc ? 1 : 0

  security_group_id            = aws_security_group.nodes[0].id
  description                  = "The nodes of a gang"
  referenced_security_group_id = aws_security_group.nodes[0].id
  ip_protocol                  = "-1"
}

resource "aws_vpc_security_group_egress_rule" "nodes_out" {
  count = local.new_vpc ? 1 : 0

  security_group_id = aws_security_group.nodes[0].id
  description       = "The store, package indexes and data sets"
  cidr_ipv4         = "0.0.0.0/0"
  ip_protocol       = "-1"
}

resource "aws_security_group" "daemon" {
  name        = "${var.name}-daemon"
  description = "The daemon, which nothing reaches from outside"
  vpc_id      = local.vpc_id
  tags        = merge(local.tags, { Name = "${var.name}-daemon" })
}

resource "aws_vpc_security_group_egress_rule" "daemon" {
  for_each = merge(
    { aws = { port = 443, about = "AWS and the image's registry", cidr = "0.0.0.0/0", group = null } },
    local.postgres ? {} : { state = { port = 2049, about = "State on EFS", cidr = null, group = aws_security_group.state.id } },
    local.postgres ? { state = { port = 5432, about = "State on RDS", cidr = null, group = aws_security_group.state.id } } : {},
  )

  security_group_id            = aws_security_group.daemon.id
  description                  = each.value.about
  cidr_ipv4                    = each.value.cidr
  referenced_security_group_id = each.value.group
  ip_protocol                  = "tcp"
  from_port                    = each.value.port
  to_port                      = each.value.port
}
