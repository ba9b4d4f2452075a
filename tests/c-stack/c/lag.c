/* Ports of queue pairs on bonded ports: what is told and what can be changed. "bonded" as an argument: the device's
 * ports are bonded. */
#include <string.h>

#include "ring.h"

static void alone(struct ibv_qp *qp)
{
	uint8_t port = 9, active = 9;

	check("query without bonded ports", mlx5dv_query_qp_lag_port(qp, &port, &active), EOPNOTSUPP);
	check("modify without bonded ports", mlx5dv_modify_qp_lag_port(qp, 1), EOPNOTSUPP);
}

static void bonded(struct ibv_qp *qp)
{
	uint8_t port = 9, active = 9, other;

	check("query in RESET", mlx5dv_query_qp_lag_port(qp, &port, &active), 0);
	check("a port", port == 1 || port == 2, 1);
	check("it is active", active, port);
	other = 3 - port;
	check("modify in RESET", mlx5dv_modify_qp_lag_port(qp, other), EOPNOTSUPP);
	to_init(qp);
	check("modify in INIT", mlx5dv_modify_qp_lag_port(qp, other), EOPNOTSUPP);
	to_rts(qp);
	check("modify", mlx5dv_modify_qp_lag_port(qp, other), 0);
	check("query", mlx5dv_query_qp_lag_port(qp, &port, &active), 0);
	check("moved", port, other);
	check("it is active", active, other);
	check("no such port", mlx5dv_modify_qp_lag_port(qp, 3), EINVAL);
	check("port 0", mlx5dv_modify_qp_lag_port(qp, 0), EINVAL);
	check("query", mlx5dv_query_qp_lag_port(qp, &port, &active), 0);
	check("stays", port, other);
}

/* Raw packets, whose port is another object's. */
static void packets(struct ibv_qp_init_attr init, int has)
{
	uint8_t port = 9, active = 9, other;
	struct ibv_qp *qp;

	init.qp_type = IBV_QPT_RAW_PACKET;
	qp = ibv_create_qp(pd, &init);
	check("there is a queue pair of raw packets", qp != NULL, 1);
	check("query", mlx5dv_query_qp_lag_port(qp, &port, &active), has ? 0 : EOPNOTSUPP);
	check("modify", mlx5dv_modify_qp_lag_port(qp, 1), has ? 0 : EOPNOTSUPP);
	if (has) {
		check("a port", port == 1 || port == 2, 1);
		check("it is active", active, port);
		other = 3 - port;
		check("modify in RESET", mlx5dv_modify_qp_lag_port(qp, other), 0);
		check("query", mlx5dv_query_qp_lag_port(qp, &port, &active), 0);
		check("moved", port, other);
		check("it is active", active, other);
		check("no such port", mlx5dv_modify_qp_lag_port(qp, 3), EINVAL);
		check("query", mlx5dv_query_qp_lag_port(qp, &port, &active), 0);
		check("stays", port, other);
	}
	check("destroy_qp", ibv_destroy_qp(qp), 0);
}

int main(int argc, char **argv)
{
	struct mlx5dv_context asked = { .comp_mask = MLX5DV_CONTEXT_MASK_NUM_LAG_PORTS };
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 } };
	int has = argc > 1 && !strcmp(argv[1], "bonded");
	struct ibv_qp *qp;

	open_all(64);
	check("query_device", mlx5dv_query_device(ctx, &asked), 0);
	check("tells the ports", !!(asked.comp_mask & MLX5DV_CONTEXT_MASK_NUM_LAG_PORTS), has);
	check("ports", has ? asked.num_lag_ports : 2, 2);
	init.send_cq = init.recv_cq = ibv_cq_ex_to_cq(cq);
	qp = ibv_create_qp(pd, &init);
	check("there is a queue pair", qp != NULL, 1);
	if (has)
		bonded(qp);
	else
		alone(qp);
	check("destroy_qp", ibv_destroy_qp(qp), 0);
	packets(init, has);
	close_all();
	return checked();
}
