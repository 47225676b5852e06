package kinds

import (
	"strings"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/strictjson"
)

const protocolMCP = "mcp"

func nameOfMCP(doc *object) string { return doc.need("name") }

// projectMCP projects an MCP registry's server.json: the shape of today and the
// one that the registry was seeded with.
func projectMCP(_ string, doc *object) *directory.Projection {
	projection := &directory.Projection{
		Name:        doc.need("name"),
		Description: doc.short("description", directory.MaxDescription),
		Protocols:   []string{protocolMCP},
		Status:      doc.text("status"),
		Version:     doc.text("version"),
	}
	if detail := doc.child("version_detail").text("version"); projection.Version == "" {
		projection.Version = detail
	}

	projection.Vendor = vendorOfMCP(projection.Name)

	remotes := doc.objects("remotes")
	for _, o := range remotes {
		b := directory.Binding{Protocol: protocolMCP, Endpoint: o.uri("url", o.need("url")),
			Transport: o.either("type", "transport_type")}
		projection.Bindings = append(projection.Bindings, b)
	}

	if len(remotes) > 0 {
		projection.Authentication = headersOfMCP(remotes[0])
	}

	projection.Base = baseOfMCP(doc, projection.Bindings)
	if strings.HasPrefix(projection.Base, "pkg:") {
		projection.Bindings = []directory.Binding{{Protocol: protocolMCP, Endpoint: projection.Base}}
	}

	return projection
}

// either returns the string member of a newer name, or of an older one.
func (o *object) either(newer, older string) string {
	s, old := o.text(newer), o.text(older)
	if s == "" {
		return old
	}

	return s
}

// vendorOfMCP returns the first two labels of a reverse-DNS name.
func vendorOfMCP(name string) string {
	space, _, ok := strings.Cut(name, "/")

	labels := strings.SplitN(space, ".", 3)
	if !ok || len(labels) < 2 {
		return ""
	}

	return labels[0] + "." + labels[1]
}

// headersOfMCP returns the names of the headers that a remote wants, never their
// values.
func headersOfMCP(remote *object) []byte {
	var names []string
	for _, h := range remote.objects("headers") {
		names = append(names, h.need("name"))
	}

	return namedHeaders(names)
}

// namedHeaders says that the named headers authenticate; nil if there are none.
func namedHeaders(names []string) []byte {
	if len(names) == 0 {
		return nil
	}

	return append(strictjson.AppendRaw([]byte{'{'}, "headers", strictjson.AppendStrings(nil, names)), '}')
}

// baseOfMCP returns the first remote's URL, else the first package that is known
// as a package URL, else the repository's URL.
func baseOfMCP(doc *object, remotes []directory.Binding) string {
	var purl string
	for _, o := range doc.objects("packages") {
		registry := o.either("registryType", "registry_name")
		name := o.either("identifier", "name")

		version := o.text("version")
		if purl == "" && registry != "" && registry != "unknown" && name != "" {
			purl = packageURL(registry, name, version)
		}
	}

	repository := doc.child("repository")

	url := repository.text("url")
	switch {
	case len(remotes) > 0:
		return remotes[0].Endpoint
	case purl != "":
		return purl
	case url != "":
		return repository.uri("url", url)
	}

	doc.reading.refuse(directory.BadDocument, "",
		"the server has no remote, no package of a known registry and no repository url, so it can't be "+
			"reached: add one of them")

	return ""
}

// packageURL returns pkg:TYPE/NAME@VERSION (the purl specification, 5), encoded.
func packageURL(registry, name, version string) string {
	registry = strings.ToLower(registry)
	if registry == "pypi" {
		name = strings.ReplaceAll(strings.ToLower(name), "_", "-")
	}

	segments := []string{name}
	if !strings.Contains(name, "://") { // an identifier that is itself a URL is one segment
		segments = strings.FieldsFunc(name, func(r rune) bool { return r == '/' })
	}

	for i, s := range segments {
		segments[i] = encodePURL(s)
	}

	purl := "pkg:" + encodePURL(registry) + "/" + strings.Join(segments, "/")
	if version != "" {
		purl += "@" + encodePURL(version)
	}

	return purl
}

// encodePURL percent-encodes all bytes except those that every part of a package URL allows.
func encodePURL(s string) string {
	const hex = "0123456789ABCDEF"

	var out strings.Builder
	for i := range len(s) {
		switch c := s[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', strings.IndexByte("-._~", c) >= 0:
			out.WriteByte(c)
		default:
			out.WriteByte('%')
			out.WriteByte(hex[c>>4])
			out.WriteByte(hex[c&15])
		}
	}

	return out.String()
}
