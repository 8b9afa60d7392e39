// Reads configurations of Dex from standard input, one a line, and writes what Dex makes of each, one a line. Dex's own program cannot be
// asked: it starts. So this does the few steps of its cmd/dex/config.go with the same libraries and the same types.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/dexidp/dex/server"
	"github.com/dexidp/dex/storage"
	"github.com/dexidp/dex/storage/etcd"
	"github.com/ghodss/yaml"
)

// A storage or a connector.
type part struct {
	Type   string          `json:"type"`
	Name   string          `json:"name,omitempty"`
	ID     string          `json:"id,omitempty"`
	Config json.RawMessage `json:"config"`
}

type config struct {
	Issuer        string           `json:"issuer"`
	Storage       part             `json:"storage"`
	Connectors    []part           `json:"connectors"`
	StaticClients []storage.Client `json:"staticClients"`
}

// What releases make of a configuration.
type reading struct {
	// 2.13: variables are expanded in the text, and its types take that.
	First config `json:"first"`
	// Later ones: variables are expanded in each text of the values.
	Later config `json:"later"`
}

func main() {
	input := bufio.NewReader(os.Stdin)
	output := bufio.NewWriter(os.Stdout)
	defer output.Flush()
	for {
		line, err := input.ReadBytes('\n')
		if len(line) > 0 {
			read, err := read(line)
			if err != nil {
				fmt.Fprintf(os.Stderr, "%v: %s\n", err, line)
				os.Exit(1)
			}
			fmt.Fprintf(output, "%s\n", read)
		}
		if err == io.EOF {
			return
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

func read(text []byte) ([]byte, error) {
	var first, later config
	if err := yaml.Unmarshal(text, &first); err != nil {
		return nil, err
	}
	if err := yaml.Unmarshal(text, &later); err != nil {
		return nil, err
	}
	if first.Storage.Type != "etcd" {
		return nil, fmt.Errorf("the storage is %q", first.Storage.Type)
	}
	if err := typed(&first.Storage, new(etcd.Etcd)); err != nil {
		return nil, err
	}
	for index := range first.Connectors {
		of := &first.Connectors[index]
		known, ok := server.ConnectorsConfig[of.Type]
		if !ok {
			return nil, fmt.Errorf("a connector is %q", of.Type)
		}
		if err := typed(of, known()); err != nil {
			return nil, err
		}
	}
	for _, of := range append([]*part{&later.Storage}, pointers(later.Connectors)...) {
		var values map[string]interface{}
		if err := json.Unmarshal(of.Config, &values); err != nil {
			return nil, err
		}
		expanded, err := json.Marshal(expand(values))
		if err != nil {
			return nil, err
		}
		of.Config = expanded
	}
	return json.Marshal(reading{First: first, Later: later})
}

// Expands variables in the text, and leaves what the type takes of it.
func typed(of *part, into interface{}) error {
	if err := json.Unmarshal([]byte(os.ExpandEnv(string(of.Config))), into); err != nil {
		return err
	}
	taken, err := json.Marshal(into)
	of.Config = taken
	return err
}

func pointers(parts []part) []*part {
	all := make([]*part, len(parts))
	for index := range parts {
		all[index] = &parts[index]
	}
	return all
}

func expand(value interface{}) interface{} {
	switch value := value.(type) {
	case string:
		return os.ExpandEnv(value)
	case map[string]interface{}:
		for name := range value {
			value[name] = expand(value[name])
		}
	case []interface{}:
		for index := range value {
			value[index] = expand(value[index])
		}
	}
	return value
}
