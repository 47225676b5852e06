package agents

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/roster-mesh/roster/cmd/roster/cli"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/strictjson"
)

// maxCatalogue bounds a file to import, in bytes.
const maxCatalogue = 64 << 20

// maxItems bounds the documents of one import.
const maxItems = 100_000

// readItems reads the documents of a file, or of the *.json files of a directory. An
// unreadable file of a directory is a refused item.
func (im *importer) readItems(source string) ([]*item, error) {
	files, err := filesOf(source)
	if err != nil {
		return nil, err
	}

	var items []*item
	for _, file := range files {
		more, err := im.readCatalogue(file)
		switch {
		// A single file is the whole import, so its failure is the command's.
		case err != nil && len(files) == 1:
			return nil, err
		case err != nil:
			unreadable := &item{Source: filepath.Base(file)}
			unreadable.refuse(err)
			more = []*item{unreadable}
		}

		items = append(items, more...)
		if len(items) > maxItems {
			return nil, cli.Failed(cli.ExitFailed, "more than %d documents", maxItems).WithHint("Import them in parts.")
		}
	}

	return items, nil
}

// filesOf returns the *.json files of a directory in the order of their names, or the one
// file that source is. A file that doesn't exist is returned too; its reader fails.
func filesOf(source string) ([]string, error) {
	if info, err := os.Stat(source); err != nil || !info.IsDir() {
		return []string{source}, nil
	}

	files, err := filepath.Glob(filepath.Join(escapeGlob(source), "*.json"))
	if err == nil && len(files) == 0 {
		err = errors.New("no *.json files")
	}

	if err != nil {
		return nil, cli.Failed(cli.ExitFailed, "cannot import from %s: %w", source, err)
	}

	return files, nil
}

func escapeGlob(path string) string {
	return strings.NewReplacer(`*`, `\*`, `?`, `\?`, `[`, `\[`, `\`, `\\`).Replace(path)
}

// readCatalogue reads one file: a document, an array of documents, or a registry's list.
func (im *importer) readCatalogue(file string) ([]*item, error) {
	text, err := im.session.ReadFile(file, maxCatalogue+1)
	if err != nil {
		return nil, err
	}

	items, leftOut, err := itemsOf(im.kind, filepath.Base(file), text)
	im.leftOut += leftOut

	return items, err
}

// itemsOf returns the current documents of a text, and the number of others. Its name is the source
// of the items.
func itemsOf(kind directory.Kind, name string, text []byte) (items []*item, leftOut int, err error) {
	documents, err := splitCatalogue(kind, text)

	isOne := errors.Is(err, cli.ErrNoArray)
	switch {
	// A text that is no list is one document, which is judged later even if it is malformed.
	case isOne:
		documents = [][]byte{text}
	case err != nil:
		return nil, 0, cli.Failed(cli.ExitFailed, "%s is not JSON: %w", name, err)
	}

	for n, document := range documents {
		i := &item{Source: name}
		if !isOne {
			i.Source = fmt.Sprintf("%s#%d", name, n+1)
		}

		i.document, i.meta = unwrap(kind, document)
		if isLatest(kind, i) {
			items = append(items, i)
		} else {
			leftOut++
		}
	}

	return items, leftOut, nil
}

// registryFormats is how registries list documents of a kind: the member with the list, and
// the members of its elements that may hold the document.
var registryFormats = map[directory.Kind]struct {
	list     string
	document []string
}{
	directory.KindMCP: {"servers", []string{"server"}},
	directory.KindA2A: {"agents", []string{"agent_card", "agentCard"}},
}

// splitCatalogue returns the documents of an array or of a registry's list, and
// cli.ErrNoArray for anything else. A document that is not strict JSON is refused later, by
// itself.
func splitCatalogue(kind directory.Kind, text []byte) ([][]byte, error) {
	switch jsontext.Value(text).Kind() {
	case '[':
		return cli.SplitArray(text)

	case '{':
		members, err := directory.ParseObject(text)
		if err != nil {
			return nil, cli.ErrNoArray // a malformed document is refused later
		}

		list, ok := strictjson.FindMember(members, registryFormats[kind].list)
		if ok && jsontext.Value(list).Kind() == '[' {
			return cli.SplitArray(list)
		}
	}

	return nil, cli.ErrNoArray
}

// unwrap returns the document in an element of a registry's list, and the registry's own
// data beside it. Other elements are documents themselves.
func unwrap(kind directory.Kind, element []byte) (document, meta []byte) {
	members, err := directory.ParseObject(element)
	if err != nil {
		return element, nil
	}

	for _, member := range members {
		switch {
		case slices.Contains(registryFormats[kind].document, member.Name) && jsontext.Value(member.Value).Kind() == '{':
			document = member.Value
		case member.Name == "_meta":
			meta = member.Value
		}
	}

	if document == nil {
		return element, nil // and a member _meta is the document's own
	}

	return document, meta
}
