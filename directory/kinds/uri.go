package kinds

import (
	"bytes"
	"cmp"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/roster-mesh/roster/directory"
)

// hosted are the schemes whose URIs have a host.
var hosted = []string{"http", "https", "ws", "wss", "grpc", "grpcs", "ftp", "sftp", "ssh", "tcp", "amqp", "amqps",
	"mqtt", "mqtts", "coap", "coaps", "nats"}

// uri returns s, the value of a member, and remembers it as wrong where it is
// not an absolute URI (RFC 3986), or has no host though its scheme has one
// (AD-012).
func (o *object) uri(member, s string) string {
	if s == "" {
		return s
	}

	if hasUserinfo(s) {
		o.refuseUserinfo(o.pointer(member), member)
		return "" // it is shown nowhere
	}

	if why := notURI(s); why != "" {
		o.refuse(member, "%q is %.200q, which %s", member, s, why)
	}

	return s
}

// hasUserinfo reports whether a URL has a user name or a password before its host. With them a
// host that people read is not the one that is called (RFC 9110, 4.2.4).
func hasUserinfo(s string) bool {
	target, err := url.Parse(s)
	if err != nil {
		return directory.HasUserinfo(s)
	}

	return target.User != nil
}

func (o *object) refuseUserinfo(pointer, member string) {
	o.reading.refuse(directory.BadDocument, pointer, "%q has a user name or a password before its host, which is not "+
		"shown here: leave them out, everyone reads this document", member)
}

// webSchemes begin the URLs that are checked wherever they stand in a document.
var webSchemes = []string{"http://", "https://", "ws://", "wss://"}

// checkAllURLs refuses user names and passwords in web URLs, also in members that the kind doesn't know.
func (o *object) checkAllURLs() {
	// A user name is followed by an at sign, which JSON may escape.
	if !bytes.ContainsRune(o.raw, '@') && !bytes.Contains(o.raw, []byte(`\u0040`)) {
		return
	}

	decoder := jsontext.NewDecoder(bytes.NewReader(o.raw))
	for {
		token, err := decoder.ReadToken()
		if err != nil {
			return // at the end: a document is strict JSON
		}

		in, n := decoder.StackIndex(decoder.StackDepth())

		// An odd number in an object is that of a name.
		if token.Kind() != '"' || in == '{' && n%2 == 1 {
			continue
		}

		text := token.String()

		isWeb := slices.ContainsFunc(webSchemes, func(scheme string) bool {
			return len(text) >= len(scheme) && strings.EqualFold(text[:len(scheme)], scheme)
		})
		if isWeb && hasUserinfo(text) {
			at := decoder.StackPointer()
			o.refuseUserinfo(string(at), at.LastToken())
		}
	}
}

// notURI says why s is not an absolute URI; "" if it is one.
func notURI(s string) string {
	if i := strings.IndexFunc(s, func(r rune) bool { return !isURIByte(r) }); i >= 0 {
		return "has a character that a URI cannot have: percent-encode it, or fill in the placeholder"
	}

	target, err := url.Parse(s)
	switch {
	case err != nil:
		return "is not a URI"
	case target.Scheme == "":
		return "is not absolute: begin it with a scheme such as https://"
	case !escapesHold(s):
		return "has a % that two hexadecimal digits do not follow"
	case slices.Contains(hosted, target.Scheme) && notHost(s, target) != "":
		return notHost(s, target)
	case target.Opaque == "" && target.Host == "" && target.Path == "":
		return "has nothing behind its scheme"
	}

	return ""
}

// notHost says why the host of a URL can't be called, or has a second name; "" if it can.
func notHost(s string, target *url.URL) string {
	_, rest, _ := strings.Cut(s, "//")
	authority := rest[:len(rest)-len(strings.TrimLeftFunc(rest, isInAuthority))]

	// Without a port, the scheme's own is called; 1 stands for it.
	port, err := strconv.ParseUint(cmp.Or(target.Port(), "1"), 10, 16)

	switch {
	case target.Hostname() == "":
		return "has no host"
	case err != nil || port == 0:
		return "has a port outside of 1 to 65535"
	case strings.Contains(authority, "%") && authority[0] != '[':
		return "has a host with %: write a name beyond ASCII as xn--…"
	case strings.HasSuffix(target.Hostname(), "."):
		return "has a host that ends with a dot: leave it out"
	}

	return ""
}

func isInAuthority(r rune) bool { return r != '/' && r != '?' && r != '#' }

// isURIByte reports whether r is unreserved, reserved or the percent sign.
func isURIByte(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' ||
		r < 0x80 && strings.IndexByte("-._~:/?#[]@!$&'()*+,;=%", byte(r)) >= 0
}

// escapesHold reports whether two hexadecimal digits follow every percent sign.
func escapesHold(s string) bool {
	for rest := s; ; {
		_, after, found := strings.Cut(rest, "%")
		if !found {
			return true
		}

		if len(after) < 2 || !isHex(after[0]) || !isHex(after[1]) {
			return false
		}

		rest = after
	}
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}
