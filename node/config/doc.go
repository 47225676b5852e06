// Package config is the configuration of a node: one YAML file, which sample.yaml
// documents with every key and its default.
//
//	cfg, err := config.Load("node.yaml")
//
// Each section of the file is a type with a method that validates it, and names the key
// of an invalid value. The package starts nothing: node makes its parts from the values.
package config
