package scenarios

import (
	"github.com/roster-mesh/roster/scenarios/mesh"
)

// killed kills a node and returns it.
func killed(m *mesh.Mesh, n *mesh.Node) *mesh.Node {
	n.Kill()
	return n
}
