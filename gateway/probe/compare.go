package probe

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/invoke"
	"github.com/roster-mesh/roster/directory/kinds"
	"github.com/roster-mesh/roster/gateway"
	"github.com/roster-mesh/roster/gateway/crawl"
)

// Compared are the members that Compare may find different, in its order.
var Compared = []string{"id", "name", "description", "version", "vendor", "endpoint", "capabilities", "schemas",
	"authentication"}

// A Difference is one member in which a registration and its agent's description differ.
type Difference struct {
	Member     string // of Compared
	Registered string
	Said       string
}

// Compare returns the differences between a registration and its agent's description. A
// document of the description's kind must agree in all members. For another kind, or
// members that a card can't express, only members that both have must agree. No
// capability may be claimed that the agent doesn't describe. The same holds if whole is
// false: the document is known only in part. The error is gateway.ErrNothingSaid if the
// source doesn't describe this agent.
func (s *Description) Compare(agent string, doc directory.Document, projection *directory.Projection,
	whole bool) ([]Difference, error) {
	if s.kind == directory.KindMCP {
		return compareMCP(s.server, agent, doc.Kind(), projection), nil
	}

	said := s.body
	if s.kind == directory.KindWoA {
		found, err := s.listed(doc, projection)
		if err != nil {
			return nil, err
		}

		if found == nil {
			return []Difference{{Member: "id", Registered: woaID(doc), Said: "(not listed)"}}, nil
		}

		said = found.Document.Bytes()
	}

	own, err := directory.ParseDocument(s.kind, said)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", gateway.ErrNothingSaid, err)
	}

	q, err := kinds.Project(agent, own)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", gateway.ErrNothingSaid, err)
	}

	return compare(agent, projection, q, whole && doc.Kind() == s.kind), nil
}

// Judge returns the result of a probe, from the results of Compare or Fetch. The caller
// sets its time.
func Judge(differences []Difference, err error) directory.Probe {
	switch rule := gateway.RuleOf(err); {
	case rule != "":
		return directory.Probe{State: directory.ProbeUnreachable, Reason: string(rule)}
	case errors.Is(err, gateway.ErrNothingSaid):
		return directory.Probe{State: directory.ProbeUnreachable, Reason: "nothing"}
	case err != nil:
		return directory.Probe{State: directory.ProbeUnreachable, Reason: "network"}
	case len(differences) == 0:
		return directory.Probe{State: directory.ProbeVerified}
	}

	probe := directory.Probe{State: directory.ProbeMismatch}
	for _, d := range differences {
		if !slices.Contains(probe.Members, d.Member) {
			probe.Members = append(probe.Members, d.Member)
		}
	}

	return probe
}

// listed finds an agent in a Web of Agents document: by its id there if it was
// registered as such, else by its endpoint. The result is nil if an agent that was
// registered as such is not listed.
func (s *Description) listed(d directory.Document, projection *directory.Projection) (*crawl.Agent, error) {
	id := woaID(d)
	for i := range s.agents {
		agent := &s.agents[i]
		switch {
		case id != "" && woaID(agent.Document) == id:
			return agent, nil
		case id != "" && agent.Err != nil && strings.HasPrefix(agent.Name, id+"@"):
			return nil, fmt.Errorf("%w: %w", gateway.ErrNothingSaid, agent.Err)
		case id != "" || agent.Err != nil:
			continue
		}

		if q, err := kinds.Reproject(agent.Name, agent.Document); err == nil &&
			slices.ContainsFunc(projection.Bindings, func(b directory.Binding) bool { return reachedBy(q, b) }) {
			return agent, nil
		}
	}

	if id == "" {
		return nil, fmt.Errorf("%w: the document does not list the agent", gateway.ErrNothingSaid)
	}

	return nil, nil
}

// woaID returns the id of the agent of a Web of Agents document of one agent; empty for
// other documents.
func woaID(doc directory.Document) string { return invoke.WoATermsOf("", doc).ID }

// compare compares a registration with the agent's description: all members, or those
// that both have.
func compare(agent string, projection, q *directory.Projection, all bool) (ds []Difference) {
	text := func(member, registered, said string) {
		if registered != said && (all || registered != "" && said != "") {
			ds = append(ds, Difference{member, registered, said})
		}
	}
	if projection.Name != agent || all { // AD has no other
		text("name", projection.Name, q.Name)
	}

	text("description", projection.Description, q.Description)
	text("version", projection.Version, q.Version)
	text("vendor", projection.Vendor, q.Vendor)

	for _, b := range projection.Bindings {
		if slices.ContainsFunc(q.Bindings, func(o directory.Binding) bool { return o.Protocol == b.Protocol }) &&
			!reachedBy(q, b) {
			ds = append(ds, Difference{"endpoint", b.Endpoint, endpoints(q)})
		}
	}

	ds = append(ds, compareCapabilities(projection.Capabilities, q.Capabilities, all)...)
	if all && !sameJSON(projection.Authentication, q.Authentication) {
		ds = append(ds, Difference{"authentication", string(projection.Authentication), string(q.Authentication)})
	}

	return ds
}

// reachedBy reports whether an agent lists a binding.
func reachedBy(q *directory.Projection, b directory.Binding) bool {
	return slices.ContainsFunc(q.Bindings, func(o directory.Binding) bool {
		return o.Protocol == b.Protocol && strings.TrimRight(o.Endpoint, "/") == strings.TrimRight(b.Endpoint, "/")
	})
}

func endpoints(p *directory.Projection) string {
	var all []string
	for _, b := range p.Bindings {
		all = append(all, b.Endpoint)
	}

	return strings.Join(all, " ")
}

// compareCapabilities compares capabilities by their names and, if all is set, by their
// inputs and outputs.
func compareCapabilities(registered, said []directory.Capability, all bool) (ds []Difference) {
	names := func(cs []directory.Capability) (names []string) {
		for _, c := range cs {
			names = append(names, c.Name)
		}

		slices.Sort(names)

		return names
	}

	r, s := names(registered), names(said)
	if all && !slices.Equal(r, s) || !all && len(less(r, s)) > 0 {
		return []Difference{{"capabilities", strings.Join(r, " "), strings.Join(s, " ")}}
	}

	if !all {
		return nil
	}

	// The names are the same on both sides, so each capability is found.
	for _, capability := range registered {
		i := slices.IndexFunc(said, func(b directory.Capability) bool { return b.Name == capability.Name })
		if b := said[i]; !sameJSON(capability.InputSchema, b.InputSchema) ||
			!sameJSON(capability.OutputSchema, b.OutputSchema) {
			ds = append(ds, Difference{"schemas", capability.Name, b.Name})
		}
	}

	return ds
}

// less returns the elements of a that are not in b.
func less(a, b []string) (rest []string) {
	for _, s := range a {
		if !slices.Contains(b, s) {
			rest = append(rest, s)
		}
	}

	return rest
}

// sameJSON is whether two JSON values are the same, however they are written.
func sameJSON(data, b []byte) bool {
	if bytes.Equal(data, b) {
		return true
	}

	v, w := jsontext.Value(bytes.Clone(data)), jsontext.Value(bytes.Clone(b))

	return data != nil && b != nil && v.Canonicalize() == nil && w.Canonicalize() == nil && bytes.Equal(v, w)
}

// compareMCP compares a registration with an MCP server. A server.json is named by a
// reverse-DNS name, of which servers know the last part, or a title.
func compareMCP(server *gateway.MCPServer, agent string, kind directory.Kind,
	projection *directory.Projection) (ds []Difference) {
	last := projection.Name[strings.LastIndex(projection.Name, "/")+1:]

	named := slices.ContainsFunc([]string{server.Name, server.Title}, func(n string) bool {
		return n != "" && (strings.EqualFold(n, projection.Name) || strings.EqualFold(n, last))
	})
	if projection.Name != agent && !named || kind == directory.KindMCP && !named {
		ds = append(ds, Difference{"name", projection.Name, server.Name})
	}

	if projection.Version != "" && server.Version != "" && projection.Version != server.Version {
		ds = append(ds, Difference{"version", projection.Version, server.Version})
	}

	var tools []string
	for _, c := range projection.Capabilities {
		if c.Type == "tool" {
			tools = append(tools, c.Name)
		}
	}

	var listed []string
	for _, tool := range server.Tools {
		listed = append(listed, tool.Name)
	}

	if server.AllTools && len(less(tools, listed)) > 0 {
		ds = append(ds, Difference{"capabilities", strings.Join(tools, " "), strings.Join(listed, " ")})
	}

	return ds
}
