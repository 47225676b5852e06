package kinds

import (
	"net/url"
	"slices"
	"strings"
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

	if why := notURI(s); why != "" {
		o.refuse(member, "%q is %.200q, which %s", member, s, why)
	}

	return s
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
	case target.Hostname() == "" && slices.Contains(hosted, target.Scheme):
		return "has no host"
	case target.Opaque == "" && target.Host == "" && target.Path == "":
		return "has nothing behind its scheme"
	}

	return ""
}

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
