package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/strictjson"
)

// maxCatalogue bounds a file to import, in bytes.
const maxCatalogue = 64 << 20

// maxItems bounds how many documents one import takes.
const maxItems = 100_000

// readItems reads the documents of a file, or of the *.json files of a directory.
// Of a directory, a file that can't be read is a refused item.
func (im *importing) readItems(source string) ([]*item, error) {
	files, err := im.files(source)
	if err != nil {
		return nil, err
	}
	var items []*item
	for _, file := range files {
		of, err := im.readCatalogue(file)
		switch {
		case err != nil && len(files) == 1:
			return nil, err
		case err != nil:
			i := &item{Source: filepath.Base(file)}
			i.refuse(err)
			of = []*item{i}
		}
		if items = append(items, of...); len(items) > maxItems {
			return nil, failed(exitFailed, "more than %d documents", maxItems).because("Import them in parts.")
		}
	}
	return items, nil
}

func (im *importing) files(source string) ([]string, error) {
	if info, err := os.Stat(source); err != nil || !info.IsDir() {
		return []string{source}, nil // the reader tells what is wrong
	}
	files, err := filepath.Glob(filepath.Join(escapeGlob(source), "*.json")) // sorted
	if err == nil && len(files) == 0 {
		err = errors.New("no *.json in it")
	}
	if err != nil {
		return nil, failed(exitFailed, "nothing to import from %s: %w", source, err)
	}
	return files, nil
}

func escapeGlob(s string) string {
	return strings.NewReplacer(`*`, `\*`, `?`, `\?`, `[`, `\[`, `\`, `\\`).Replace(s)
}

// readCatalogue reads one file: a document, an array of them, or a registry's
// list.
func (im *importing) readCatalogue(file string) ([]*item, error) {
	text, err := im.readFile(file, maxCatalogue+1)
	if err != nil {
		return nil, err
	}
	return itemsOf(im.kind, filepath.Base(file), text)
}

// itemsOf returns the documents of a text that is called base.
func itemsOf(kind directory.Kind, base string, text []byte) ([]*item, error) {
	list, err := splitCatalogue(kind, text)
	if errors.Is(err, errNoArray) {
		return []*item{{Source: base, document: text}}, nil
	}
	if err != nil {
		return nil, failed(exitFailed, "%s is not JSON: %w", base, err)
	}
	items := make([]*item, len(list))
	for n, document := range list {
		items[n] = &item{Source: fmt.Sprintf("%s#%d", base, n+1)}
		items[n].document, items[n].meta = unwrap(kind, document)
	}
	return items, nil
}

// lists are how registries list documents of a kind: the list's member, and the
// members of its items that a document may be behind.
var lists = map[directory.Kind]struct {
	list string
	item []string
}{
	directory.KindMCP: {"servers", []string{"server"}},
	directory.KindA2A: {"agents", []string{"agent_card", "agentCard"}},
}

// splitCatalogue returns the documents of an array or of a registry's list, and
// errNoArray for anything else. What is not strict within a document is that
// document's own affair.
func splitCatalogue(kind directory.Kind, text []byte) ([][]byte, error) {
	switch jsontext.Value(text).Kind() {
	case '[':
		return split(text)
	case '{':
		members, err := directory.ParseObject(text)
		if err != nil {
			return nil, errNoArray // a broken document is refused as one
		}
		if list, ok := strictjson.FindMember(members, lists[kind].list); ok && jsontext.Value(list).Kind() == '[' {
			return split(list)
		}
	}
	return nil, errNoArray
}

// unwrap returns the document of a registry's list item and the registry's own
// words beside it, if there are any; other documents as they are.
func unwrap(kind directory.Kind, document []byte) (found, meta []byte) {
	members, err := directory.ParseObject(document)
	if err != nil {
		return document, nil
	}
	for _, m := range members {
		switch {
		case slices.Contains(lists[kind].item, m.Name) && jsontext.Value(m.Value).Kind() == '{':
			found = m.Value
		case m.Name == "_meta":
			meta = m.Value
		}
	}
	if found == nil {
		return document, nil
	}
	return found, meta
}
