package kinds

import (
	"strings"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/strictjson"
)

const protocolMCP = "mcp"

func nameOfMCP(doc *object) string { return doc.need("name") }

// projectMCP projects an MCP registry's server.json: the present shape and the
// one that the registry was seeded with.
func projectMCP(_ string, doc *object) *directory.Projection {
	projection := &directory.Projection{
		Name:        doc.need("name"),
		Description: doc.short("description", directory.MaxDescription),
		Protocols:   []string{protocolMCP},
		Status:      doc.text("status"),
		Version:     doc.text("version"),

		Capabilities: toolsOfMCP(doc),
	}

	// The older shape has the version in an object.
	if detail := doc.child("version_detail").text("version"); projection.Version == "" {
		projection.Version = detail
	}

	projection.Vendor = vendorOfMCP(projection.Name)

	template := false

	for _, o := range doc.objects("remotes") {
		// A template that its variables don't fill in is no binding.
		address, filled := fillTemplate(o.need("url"), o.child("variables"))
		if !filled {
			template = true
			continue
		}

		// The first remote is the base, so its headers are those that count.
		if len(projection.Bindings) == 0 {
			projection.Authentication = headersOfMCP(o)
		}

		projection.Bindings = append(projection.Bindings, directory.Binding{Protocol: protocolMCP,
			Endpoint: o.uri("url", address), Transport: o.either("type", "transport_type")})
	}

	projection.Base = baseOfMCP(doc, projection.Bindings, template)

	// Without a remote, the package is the only way to the server.
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

// fillTemplate replaces the placeholders of a remote's URL by the values or defaults of its
// variables. It returns false if one has none.
func fillTemplate(address string, variables *object) (filled string, ok bool) {
	var out strings.Builder

	for rest := address; ; {
		before, after, found := strings.Cut(rest, "{")
		name, behind, closed := strings.Cut(after, "}")

		out.WriteString(before)

		switch {
		case !found:
			return out.String(), true
		case !closed || name == "": // no placeholder, and no URL
			// The brace stays, and the URL is refused for it.
			return address, true
		}

		value := variables.child(name).either("value", "default")
		if value == "" {
			return "", false
		}

		out.WriteString(value)
		rest = behind
	}
}

// baseOfMCP returns the first remote's URL, else the first package that is known
// as a package URL, else the repository's URL. A server whose URL is only a template is named by
// a package URL of no registry.
func baseOfMCP(doc *object, remotes []directory.Binding, template bool) string {
	var purl string
	for _, o := range doc.objects("packages") {
		registry := o.either("registryType", "registry_name")
		name := o.either("identifier", "name")

		version := o.text("version")

		// Later packages are read for their faults alone.
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
	case template:
		return "pkg:generic/" + encodePath(doc.text("name")) + versionPURL(doc.text("version"))
	}

	doc.reading.refuse(directory.BadDocument, "",
		"the server has no remote, no package of a known registry and no repository url, so it can't be "+
			"reached: add one of them")

	return ""
}

// packageURL returns pkg:TYPE/NAME@VERSION?QUALIFIERS (the purl specification, 5), encoded, by the
// rules of its type.
func packageURL(registry, name, version string) string {
	registry = strings.ToLower(registry)

	switch {
	case registry == "pypi":
		// The registry knows names without case, and takes an underscore for a hyphen.
		name = strings.ReplaceAll(strings.ToLower(name), "_", "-")
	case registry == "oci", registry == "docker":
		return imageURL(registry, name, version)
	case strings.Contains(name, "://"): // the URL of a file, which no registry names
		file := strings.TrimRight(name, "/")

		return "pkg:generic/" + encodePURL(file[strings.LastIndexByte(file, '/')+1:]) + versionPURL(version) +
			"?download_url=" + encodeQualifier(name)
	}

	return "pkg:" + encodePURL(registry) + "/" + encodePath(name) + versionPURL(version)
}

// imageURL returns the package URL of a container image. Of type oci, a digest is the version, and
// the repository and the tag are qualifiers; of type docker, the tag is a version, too.
func imageURL(registry, reference, version string) string {
	repository, digest, _ := strings.Cut(reference, "@")

	tag := version

	// A colon before the last slash is that of a port.
	if colon := strings.LastIndexByte(repository, ':'); colon > strings.LastIndexByte(repository, '/') {
		repository, tag = repository[:colon], repository[colon+1:]
	}

	repository = strings.ToLower(strings.Trim(repository, "/"))

	if registry == "docker" {
		host, path, _ := strings.Cut(repository, "/")

		if digest != "" {
			tag = digest
		}

		if path == "" || !strings.ContainsAny(host, ".:") { // the first segment is no registry's host
			return "pkg:docker/" + encodePath(repository) + versionPURL(tag)
		}

		return "pkg:docker/" + encodePath(path) + versionPURL(tag) + "?repository_url=" + encodeQualifier(host)
	}

	purl := "pkg:oci/" + encodePURL(repository[strings.LastIndexByte(repository, '/')+1:]) + versionPURL(digest)

	before := "?"
	if strings.Contains(repository, "/") {
		purl += before + "repository_url=" + encodeQualifier(repository)
		before = "&"
	}

	if tag != "" {
		purl += before + "tag=" + encodeQualifier(tag)
	}

	return purl
}

// versionPURL is the version of a package URL with its leading @; "" without a version.
func versionPURL(version string) string {
	if version == "" {
		return ""
	}

	return "@" + encodePURL(version)
}

// encodePath encodes the segments of a name.
func encodePath(name string) string {
	segments := strings.FieldsFunc(name, func(r rune) bool { return r == '/' })
	for i, s := range segments {
		segments[i] = encodePURL(s)
	}

	return strings.Join(segments, "/")
}

// encodeQualifier encodes the value of a qualifier, in which / and : stand for themselves.
func encodeQualifier(s string) string {
	return strings.NewReplacer("%2F", "/", "%3A", ":").Replace(encodePURL(s))
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
