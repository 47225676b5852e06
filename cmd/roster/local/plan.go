package local

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/trust"
)

// The sources of the nodes' identities, besides the address of a Workload API.
const (
	fromCA    = "ca"
	fromFiles = "files"
)

// The offsets of a node's ports from the first one, that of its API.
const (
	adminOffset = iota + 1
	clusterOffset
	gossipOffset
	maxPort = 65535 - gossipOffset
)

// A plan is a domain to configure.
type plan struct {
	dir         string // of the nodes' directories
	trustDomain spiffeid.TrustDomain
	publicURL   string
	members     []member
	join        []string // cluster addresses of the domain that the only member joins; empty for a new domain
	identities  string   // fromCA, fromFiles, or the address of a Workload API
	ca          string   // directory of the certificate authority

	newParents []string // dir and directories above it that write makes, the deepest first
}

// A member is one node of the domain, as its configuration names it.
type member struct {
	name string // last part of its SPIFFE ID, and its directory
	host string
	port int // of its API
	id   spiffeid.ID
}

// segment is a path segment of a SPIFFE ID that is a directory's name, too.
var segment = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

// newPlan returns the plan for checked answers.
func newPlan(dir string, given answers) (*plan, error) {
	p := &plan{dir: dir, publicURL: given.publicURL, identities: given.identities, ca: given.ca}

	td, err := spiffeid.TrustDomainFromString(given.trustDomain)

	// A SPIFFE ID parses as its trust domain, and is refused here.
	if err != nil || strings.Contains(given.trustDomain, "/") {
		return nil, fmt.Errorf("--trust-domain: must be lower-case letters, digits, dots, dashes and underscores, "+
			"got %q", given.trustDomain)
	}

	p.trustDomain = td

	if given.port < 1 || given.port > maxPort {
		return nil, fmt.Errorf("--port: must be 1 to %d, got %d", maxPort, given.port)
	}

	if p.join, err = parseJoin(given.join, given.port); err != nil {
		return nil, err
	}

	// The number of members that a majority needs is that of a new domain.
	if n := len(given.members); p.joins() && n > 1 {
		return nil, fmt.Errorf("--members: must be the one node that joins, got %d; run the command once for each", n)
	}

	if p.members, err = parseMembers(td, given.members, given.port); err != nil {
		return nil, err
	}

	p.publicURL = cmp.Or(p.publicURL, p.firstAPI())

	if u, err := url.Parse(p.publicURL); err != nil || u.Host == "" || p.publicURL != "https://"+u.Host {
		return nil, fmt.Errorf("--public-url: must be https://HOST[:PORT], got %q", p.publicURL)
	}

	if p.identities != fromCA && p.identities != fromFiles {
		if err := trust.CheckWorkloadAPI(p.identities); err != nil {
			return nil, fmt.Errorf("--identities: must be ca, files, or the address of a Workload API "+
				"(unix:///PATH), got %q", p.identities)
		}
	}

	return p, nil
}

// joins reports whether the plan is of a node that joins a domain.
func (p *plan) joins() bool { return len(p.join) > 0 }

// firstAPI returns the API of the domain's first node, as far as the plan has it.
func (p *plan) firstAPI() string {
	if !p.joins() {
		return p.members[0].api()
	}

	host, _, _ := net.SplitHostPort(p.join[0])

	return member{host: host, port: p.members[0].port}.api()
}

// parseJoin reads addresses to join at, HOST or HOST:PORT of listen.cluster each.
func parseJoin(list []string, port int) ([]string, error) {
	var join []string
	for _, text := range list {
		host, cluster, err := net.SplitHostPort(text)
		if err != nil {
			// The address is a host alone, so the port of its listen.cluster follows from --port.
			host, cluster = strings.Trim(text, "[]"), strconv.Itoa(port+clusterOffset)
		}

		number, err := strconv.ParseUint(cluster, 10, 16)
		if err != nil || number == 0 {
			return nil, fmt.Errorf("--join: %q: the port must be from 1 to 65535", text)
		}

		if host, err = parseHost(host); err != nil {
			return nil, fmt.Errorf("--join: %q: %w", text, err)
		}

		join = append(join, net.JoinHostPort(host, cluster))
	}

	return join, nil
}

// parseMembers reads a list of members, NAME=HOST or HOST each.
func parseMembers(td spiffeid.TrustDomain, list []string, port int) ([]member, error) {
	if n := len(list); n != 1 && n != 3 && n != 5 {
		return nil, fmt.Errorf("--members: must be 1, 3 or 5 nodes, so that a majority decides, got %d", n)
	}

	var members []member
	for _, each := range list {
		name, host, named := strings.Cut(each, "=")
		if !named {
			host = name
		}

		if strings.Contains(each, "@") {
			return nil, errors.New("--members: an address has no user name; write NAME=ADDRESS")
		}

		if !segment.MatchString(name) {
			return nil, fmt.Errorf("--members: %q: a name is letters, digits, dots, dashes and underscores; "+
				"write NAME=ADDRESS", each)
		}

		host, err := parseHost(strings.Trim(host, "[]"))
		if err != nil {
			return nil, fmt.Errorf("--members: %q: %w", each, err)
		}

		// All members have the same ports, so two of them can't share an address.
		isSame := func(other member) bool { return other.name == name || other.host == host }
		if slices.ContainsFunc(members, isSame) {
			return nil, fmt.Errorf("--members: %q: another member has the same name or address", each)
		}

		id, err := spiffeid.FromPath(td, trust.NodePath+name)
		if err != nil {
			return nil, fmt.Errorf("--members: %q: %w", each, err)
		}

		members = append(members, member{name: name, host: host, port: port, id: id})
	}

	return members, nil
}

// hostName is a DNS name.
var hostName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?$`)

// parseHost returns an IP address, in its one form, or a DNS name at which other nodes can reach
// a node.
func parseHost(host string) (string, error) {
	ip := net.ParseIP(host)

	switch {
	case ip != nil && ip.IsUnspecified():
		return "", errors.New("an address at which the other nodes reach it is needed, not the unspecified one")
	case ip != nil:
		return ip.String(), nil
	case !hostName.MatchString(host):
		return "", fmt.Errorf("%q is neither an IP address nor a DNS name; ports follow from --port", host)
	}

	return host, nil
}

// address returns the address of one of the member's listeners for other hosts.
func (m member) address(offset int) string {
	return net.JoinHostPort(m.host, strconv.Itoa(m.port+offset))
}

func (m member) api() string { return "https://" + m.address(0) }

// listen returns the address that one of the member's listeners binds: the member's own if
// it is an IP address, else all of its host's.
func (m member) listen(offset int) string {
	if net.ParseIP(m.host) != nil {
		return m.address(offset)
	}

	return net.JoinHostPort("0.0.0.0", strconv.Itoa(m.port+offset))
}

// admin returns the loopback address of the member's admin listener.
func (m member) admin() string {
	host := "127.0.0.1"
	if ip := net.ParseIP(m.host); ip != nil && ip.IsLoopback() {
		// Several nodes on one machine have different loopback addresses.
		host = m.host
	}

	return net.JoinHostPort(host, strconv.Itoa(m.port+adminOffset))
}

// hosts returns the names and addresses in the member's certificate: those at which clients
// that know no SPIFFE reach it.
func (m member) hosts(publicURL string) []string {
	hosts := []string{m.host}
	if u, err := url.Parse(publicURL); err == nil && u.Hostname() != m.host {
		hosts = append(hosts, u.Hostname())
	}

	return hosts
}
