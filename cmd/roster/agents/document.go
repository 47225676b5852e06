package agents

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/cmd/roster/cli"
	"github.com/roster-mesh/roster/cmd/roster/connect"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/kinds"
	"github.com/roster-mesh/roster/directory/strictjson"
)

// recogniseKind sets the kind of a document for which --kind is absent. If the kind isn't
// certain, it stays the default.
func (r *registrant) recogniseKind() {
	members, err := strictjson.ParseObject(r.keeper.Document)
	if err != nil || r.keeper.Options.Kind != "" {
		// The directory names the faults of a document that can't be parsed.
		return
	}

	kind, certain := kinds.Recognise(members)

	// A wrong guess would have a valid document refused, so an uncertain one is not used.
	if !certain || kind == directory.KindAD {
		return
	}

	r.keeper.Options.Kind = string(kind)
	r.session.Note("%s looks like %s; registering it with --kind %s.", r.file, kinds.Title(kind), kind)
}

// addTools asks the document's MCP server for its tools, and adds them to the document.
func (r *registrant) addTools(ctx context.Context, asked *connect.FetchOptions) error {
	if r.keeper.Options.Kind != string(directory.KindMCP) {
		return cli.Usage("--tools is for an MCP server.json; %s is registered as kind %s", r.file,
			cmp.Or(r.keeper.Options.Kind, string(directory.KindAD)))
	}

	guard, err := asked.Guard(r.session.Console)
	if err != nil {
		return err
	}
	defer guard.Close()

	tools, err := connect.AddTools(ctx, guard, r.keeper.Document)

	var invalid *directory.Error

	switch {
	// An invalid document is refused without --tools as well, so that the hint would mislead.
	case errors.As(err, &invalid):
		return err

	// The user asked for the tools, so nothing is registered without them. An import warns, for its other documents.
	case err != nil:
		return cli.Failed(cli.ExitFailed, "%s; nothing was registered", cli.FirstLine(err.Error())).
			WithHint("Without --tools the server is registered without its tools.")
	case tools.Note != "":
		r.session.Note("Note: %s", tools.Note)
	}

	r.keeper.Document = tools.Document

	return nil
}

// explainInvalid returns the failure of a document that the directory refused: the flag for
// the kind that it looks like, or all faults. With a format for programs, they go to standard
// output as the directory sent them.
func (r *registrant) explainInvalid(err error) error {
	var response *apiclient.Error
	if !errors.As(err, &response) || len(response.Errors) == 0 {
		return err
	}

	members, _ := strictjson.ParseObject(r.keeper.Document)

	sent, _ := directory.ParseKind(r.keeper.Options.Kind)
	if kind, _ := kinds.Recognise(members); kind != "" && kind != sent {
		return cli.Usage("%s looks like %s: add --kind %s", r.file, kinds.Title(kind), kind)
	}

	return cmp.Or(r.session.PrintBody(response.Body), err)
}

// noteIgnored notes the parts of the registration that have no effect.
func (r *registrant) noteIgnored(reply *apiclient.Reply) {
	for _, part := range reply.Ignored() {
		r.session.Note("Note: %s", connect.DescribeIgnored(part))
	}
}

// A claim is the part of a document that readers may not find or reach.
type claim struct {
	protocols []string
	endpoints []string
}

// claims returns the protocols and endpoints of the document, if this release knows its kind.
func (r *registrant) claims() (found claim) {
	kind, err := directory.ParseKind(r.keeper.Options.Kind)
	if err != nil {
		// A newer directory may accept kinds that this release doesn't know.
		return claim{}
	}

	document, err := directory.ParseDocument(kind, r.keeper.Document)
	if err != nil {
		return claim{}
	}

	projection, err := kinds.Project(r.keeper.Agent, document)
	if err != nil {
		return claim{}
	}

	found.protocols = projection.Protocols
	for _, binding := range projection.Bindings {
		if !slices.Contains(found.endpoints, binding.Endpoint) {
			found.endpoints = append(found.endpoints, binding.Endpoint)
		}
	}

	return found
}

// usualProtocol matches the usual spelling of a protocol: a lower-case short name, with a
// version if one is meant (jimenez 4.1).
var usualProtocol = regexp.MustCompile(`^[a-z0-9][a-z0-9+.-]{0,31}(/[A-Za-z0-9+._-]+)?$`)

// noteSpelling notes protocols in an unusual spelling, which lookups will rarely ask for.
// The directory accepts any spelling (AD-048).
func (r *registrant) noteSpelling(protocols []string) {
	for _, protocol := range protocols {
		if !usualProtocol.MatchString(protocol) {
			r.session.Note("Note: protocol %q was registered as written. Lookups match it exactly; "+
				"the usual form is a lower-case short name, such as a2a or mcp/1.0.", protocol)
		}
	}
}

// Bounds of the look at endpoints.
const (
	maxEndpoints = 8
	resolveTime  = 3 * time.Second // for all names
)

// noteEndpoints notes endpoints that are not https or whose host doesn't resolve on this
// machine. The directory itself resolves no name that a registrant gave it.
func (r *registrant) noteEndpoints(ctx context.Context, endpoints []string) {
	// All names share one deadline, so that a silent resolver delays the command once.
	ctx, cancel := context.WithTimeout(ctx, resolveTime)
	defer cancel()

	var hosts []string

	for _, endpoint := range endpoints[:min(len(endpoints), maxEndpoints)] {
		target, err := url.Parse(endpoint)
		if err != nil || target.Hostname() == "" {
			// Some endpoints have no host, such as package URLs.
			continue
		}

		if target.Scheme == "http" || target.Scheme == "ws" {
			r.session.Note("Note: the endpoint %s is not https. Gateways call https only, except that those of "+
				"roster dev --insecure-loopback call this machine by http.", endpoint)
		}

		if host := target.Hostname(); !slices.Contains(hosts, host) {
			hosts = append(hosts, host)
		}
	}

	for _, host := range hosts {
		if reason := r.unresolved(ctx, host); reason != "" {
			r.session.Note("Note: the endpoint's host %s doesn't resolve on this machine: %s.", host, reason)
		}
	}
}

// unresolved returns why a host has no address, or nothing. A resolver that doesn't answer
// says nothing about the host.
func (r *registrant) unresolved(ctx context.Context, host string) string {
	if _, err := netip.ParseAddr(host); err == nil {
		return ""
	}

	name := strings.TrimSuffix(strings.ToLower(host), ".")
	if strings.HasSuffix(name, ".example") || strings.HasSuffix(name, ".invalid") {
		return "the domain is reserved for examples (RFC 6761)" // no resolver is asked
	}

	var unknown *net.DNSError
	if _, err := net.DefaultResolver.LookupHost(ctx, host); errors.As(err, &unknown) && unknown.IsNotFound {
		return "no such host"
	}

	return ""
}
