package layer

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	"promptfed/federation/method"
)

// Of returns the outermost layer of type T of a stack, if it has one.
func Of[T method.Method](m method.Method) (layer T, has bool) {
	for l := range method.Layers(m) {
		if layer, has = l.(T); has {
			break
		}
	}
	return layer, has
}

// NameOf returns the name of a layer in the table, which is the name of its type in lower case.
func NameOf(m method.Method) string {
	return strings.ToLower(reflect.Indirect(reflect.ValueOf(m)).Type().Name())
}

// RequireLearned returns an error for a base method that learns nothing. does is what the wrapper does.
func RequireLearned(does string) func(inner method.Method) error {
	return func(inner method.Method) error {
		if len(inner.Params(PlaceholderClient)) == 0 {
			return fmt.Errorf("it %s, but the base method learns nothing; remove it", does)
		}
		return nil
	}
}

// SharedNames lists the parameters of a method that the server averages.
func SharedNames(m method.Method) []string { return method.SharedNames(m.Params(PlaceholderClient)) }

// PlaceholderClient is a client by which a stack is checked before the real clients are known. Its towers support every
// parameter.
var PlaceholderClient = method.ClientSpec{Clients: 1, Classes: 2, Width: 8, Dim: 8, Patches: 4, Scale: 1, ImageSize: 32,
	VisionWidth: 8, VisionLayers: 2, VisionUnits: 8, TextLayers: 2, TextUnits: 8, Tokens: 16}

// checkLoss returns the error of building the loss of a wrapper, unless the loss of inner cannot be built either: it
// may need sizes of the real clients.
func checkLoss(m, inner method.Method) error {
	graphs := func(m method.Method) error {
		scope, _, _ := method.LossOf(m, PlaceholderClient)
		return scope.Graph().Err()
	}

	if inner == nil || graphs(inner) != nil {
		return nil
	}

	return graphs(m)
}

// Enumerate lists names for errors, at most six.
func Enumerate(names []string) string {
	if len(names) == 0 {
		return "nothing"
	}
	if more := len(names) - 6; more > 0 {
		return strings.Join(names[:6], ", ") + fmt.Sprintf(" and %d more", more)
	}
	return strings.Join(names, ", ")
}

// RequireMean returns an error that names a layer whose server needs more of uploads than their mean.
func RequireMean(m method.Method) error {
	for l := range method.Layers(m) {
		switch t := method.PropertiesOf(l); {
		case t.Needs != "":
			return fmt.Errorf("%s needs %s", NameOf(l), t.Needs)
		case t.Mean == "":
			return fmt.Errorf("%s needs each client's upload, not only the mean", NameOf(l))
		}
	}
	return nil
}

// RequireShared returns an error where a method shares no parameter.
func RequireShared(m method.Method) error {
	if len(SharedNames(m)) == 0 {
		return errors.New("it changes the server's average, but the base method shares nothing; choose another base " +
			"method, or remove it")
	}
	return nil
}
