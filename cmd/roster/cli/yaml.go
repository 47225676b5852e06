package cli

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"go.yaml.in/yaml/v3"
)

// AppendYAML appends JSON as YAML in block style. Members keep their order and numbers their
// digits. Strings are in double quotes, so that none is read as another type, and control
// characters are escaped (AD-072). The YAML library alone can't read all JSON: it refuses
// surrogate pairs in escapes and some control characters.
func AppendYAML(data []byte, value []byte) ([]byte, error) {
	node, err := yamlNode(jsontext.NewDecoder(bytes.NewReader(value)))
	if err != nil {
		return nil, fmt.Errorf("the response is not JSON: %w", err)
	}

	var text strings.Builder
	encoder := yaml.NewEncoder(&text)
	encoder.SetIndent(2)

	if err := encoder.Encode(node); err != nil {
		return nil, err
	}

	// Outside of quoted strings the text is plain ASCII, so the escapes that Printable
	// writes are inside of them, where YAML reads them as JSON does.
	for line := range strings.Lines(text.String()) {
		data = append(data, Printable(strings.TrimSuffix(line, "\n"))...)
		data = append(data, '\n')
	}

	return data, nil
}

// plainKey matches the names that need no quotes.
var plainKey = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]*$`)

// yamlNode reads the next JSON value.
func yamlNode(d *jsontext.Decoder) (*yaml.Node, error) {
	token, err := d.ReadToken()
	if err != nil {
		return nil, err
	}

	node := &yaml.Node{Kind: yaml.ScalarNode, Value: token.String()}
	switch kind := token.Kind(); kind {
	case '"':
		node.Tag = "!!str"
		node.Style = yaml.DoubleQuotedStyle

	case '{', '[':
		node = &yaml.Node{Kind: yaml.SequenceNode}
		if kind == '{' {
			node.Kind = yaml.MappingNode
		}

		if err := yamlItems(d, node); err != nil {
			return nil, err
		}
	}

	return node, nil
}

// yamlItems reads the members or elements of a collection up to its end.
func yamlItems(d *jsontext.Decoder, into *yaml.Node) error {
	for d.PeekKind() != '}' && d.PeekKind() != ']' {
		item, err := yamlNode(d)
		if err != nil {
			return err
		}

		isKey := into.Kind == yaml.MappingNode && len(into.Content)%2 == 0
		if isKey && plainKey.MatchString(item.Value) {
			item.Style = 0
		}

		into.Content = append(into.Content, item)
	}

	_, err := d.ReadToken()

	return err
}
