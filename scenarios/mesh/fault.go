package mesh

// Cut stops everything between two domains, both ways.
func (m *Mesh) Cut(a, b string) {
	m.Note("%s and %s are cut from each other", a, b)

	for _, x := range m.Domain(a).Nodes {
		for _, y := range m.Domain(b).Nodes {
			m.Net.Cut(x.host, y.host)
		}
	}
}

// CutOff stops everything between a domain and all others.
func (m *Mesh) CutOff(name string) {
	for _, d := range m.Domains {
		if d.Name != name {
			m.Cut(name, d.Name)
		}
	}
}

// Isolate stops everything between a node and all other nodes. Clients still
// reach it.
func (m *Mesh) Isolate(n *Node) {
	m.Note("%s is cut from all other nodes", n.Name)

	for _, other := range m.nodes() {
		if other != n {
			m.Net.Cut(n.host, other.host)
		}
	}
}

// Heal ends all cuts.
func (m *Mesh) Heal() {
	m.Note("all cuts end")

	for _, a := range m.nodes() {
		for _, b := range m.nodes() {
			m.Net.Heal(a.host, b.host)
		}
	}
}

// CutOneWay stops everything from this node to another. The other direction stays open.
func (n *Node) CutOneWay(to *Node) {
	n.env.Note("%s doesn't reach %s", n.Name, to.Name)
	n.env.Net.CutOneWay(n.host, to.host)
}

// Others returns the other nodes of a node's domain.
func (n *Node) Others() (others []*Node) {
	for _, o := range n.Domain.Nodes {
		if o != n {
			others = append(others, o)
		}
	}

	return others
}

// Rejoin ends an Isolate within the node's own domain.
func (n *Node) Rejoin() {
	n.env.Note("%s reaches its domain again", n.Name)

	for _, other := range n.Others() {
		n.env.Net.Heal(n.host, other.host)
	}
}

// Freeze stops everything between a node and all others, clients too, as if
// its machine were suspended: connections stay, and data waits until Thaw. The node's own clocks go on.
func (m *Mesh) Freeze(n *Node) {
	m.Note("%s is suspended", n.Name)
	m.Isolate(n)
	m.Net.Cut(n.host, n.Domain.clientHost())
}

// Thaw ends a Freeze.
func (m *Mesh) Thaw(n *Node) {
	m.Note("%s continues", n.Name)

	for _, other := range m.nodes() {
		m.Net.Heal(n.host, other.host)
	}

	m.Net.Heal(n.host, n.Domain.clientHost())
}
