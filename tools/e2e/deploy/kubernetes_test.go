package deploy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

const folder = "../../../docs/deploy/"

// objects decodes manifests strictly: unknown fields, repeated fields, wrong types and unknown kinds are errors.
func objects(manifests string) ([]runtime.Object, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{appsv1.AddToScheme, batchv1.AddToScheme, corev1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	decoder := json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme, scheme, json.SerializerOptions{
		Yaml: true, Strict: true})
	var list []runtime.Object
	documents := yaml.NewDocumentDecoder(io.NopCloser(strings.NewReader(manifests)))
	defer documents.Close()
	buffer := make([]byte, 1<<20)
	for {
		n, err := documents.Read(buffer)
		if errors.Is(err, io.EOF) {
			return list, nil
		}
		if err != nil {
			return nil, err
		}
		text := bytes.TrimSpace(buffer[:n])
		if len(text) == 0 {
			continue
		}
		o, _, err := decoder.Decode(text, nil, nil)
		if err != nil {
			return nil, fmt.Errorf("%w in\n%s", err, text)
		}
		list = append(list, o)
	}
}

// check finds errors across objects: selectors that select nothing, and missing ports, volumes, configurations and
// secrets. given are secrets that exist already.
func check(list []runtime.Object, given ...string) error {
	var bad []error
	fail := func(format string, a ...any) { bad = append(bad, fmt.Errorf(format, a...)) }
	var pods []corev1.PodTemplateSpec
	there := map[string]bool{}
	for _, name := range given {
		there["secret "+name] = true
	}
	for _, o := range list {
		switch o := o.(type) {
		case *batchv1.Job:
			pods = append(pods, o.Spec.Template)
			if p := o.Spec.Template.Spec.RestartPolicy; p != corev1.RestartPolicyOnFailure &&
				p != corev1.RestartPolicyNever {
				fail("job %s: restartPolicy %q", o.Name, p)
			}
		case *appsv1.Deployment:
			pods = append(pods, o.Spec.Template)
			s, err := metav1.LabelSelectorAsSelector(o.Spec.Selector)
			if err != nil || s.Empty() || !s.Matches(labels.Set(o.Spec.Template.Labels)) {
				fail("deployment %s does not select its own pods: %v %v", o.Name, s, err)
			}
		case *corev1.ConfigMap:
			there["configuration "+o.Name] = true
		case *corev1.Secret:
			there["secret "+o.Name] = true
		case *corev1.PersistentVolumeClaim:
			there["claim "+o.Name] = true
			if len(o.Spec.AccessModes) == 0 || o.Spec.Resources.Requests.Storage().IsZero() {
				fail("claim %s has no access modes or no size", o.Name)
			}
		}
	}
	for _, o := range list {
		service, ok := o.(*corev1.Service)
		if !ok {
			continue
		}
		n := 0
		for _, p := range pods {
			if !labels.SelectorFromSet(service.Spec.Selector).Matches(labels.Set(p.Labels)) {
				continue
			}
			n++
			for _, port := range service.Spec.Ports {
				if !slices.ContainsFunc(p.Spec.Containers[0].Ports, func(c corev1.ContainerPort) bool {
					return port.TargetPort == intstr.FromString(c.Name) ||
						port.TargetPort == intstr.FromInt32(c.ContainerPort)
				}) {
					fail("service %s: the pods have no port %v", service.Name, port.TargetPort.String())
				}
			}
		}
		if n != 1 || len(service.Spec.Selector) == 0 {
			fail("service %s selects the pods of %d workloads, want those of one", service.Name, n)
		}
	}
	for _, p := range pods {
		volumes := map[string]bool{}
		for _, v := range p.Spec.Volumes {
			volumes[v.Name] = true
			if v.ConfigMap != nil && !there["configuration "+v.ConfigMap.Name] {
				fail("there is no configuration %s", v.ConfigMap.Name)
			}
			if v.Secret != nil && !there["secret "+v.Secret.SecretName] {
				fail("there is no secret %s", v.Secret.SecretName)
			}
			if c := v.PersistentVolumeClaim; c != nil && !there["claim "+c.ClaimName] {
				fail("there is no claim %s", c.ClaimName)
			}
		}
		if len(p.Spec.Containers) != 1 {
			fail("%d containers", len(p.Spec.Containers))
		}
		for _, c := range p.Spec.Containers {
			if c.Image == "" || len(c.Args) < 2 {
				fail("container %s: image %q, arguments %q", c.Name, c.Image, c.Args)
			}
			for _, m := range c.VolumeMounts {
				if !volumes[m.Name] {
					fail("container %s mounts %s, which is no volume", c.Name, m.Name)
				}
			}
			for _, from := range c.EnvFrom {
				if r := from.SecretRef; r != nil && !there["secret "+r.Name] {
					fail("there is no secret %s", r.Name)
				}
			}
			for _, e := range c.Env {
				if f := e.ValueFrom; f != nil && f.SecretKeyRef != nil && !there["secret "+f.SecretKeyRef.Name] {
					fail("there is no secret %s", f.SecretKeyRef.Name)
				}
			}
			set := func(b *bool) bool { return b != nil && *b }
			if s, pod := c.SecurityContext, p.Spec.SecurityContext; s == nil || !set(s.ReadOnlyRootFilesystem) ||
				pod == nil || !set(pod.RunAsNonRoot) {
				fail("container %s may write to its image or be root", c.Name)
			}
		}
	}
	return errors.Join(bad...)
}

// rendered returns the output of helm template for the chart.
func rendered(t *testing.T, values map[string]any) (string, error) {
	t.Helper()
	chart, err := loader.Load(folder + "chart")
	if err != nil {
		t.Fatal(err)
	}
	all, err := chartutil.ToRenderValues(chart, values, chartutil.ReleaseOptions{Name: "demo", Namespace: "lab"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	files, err := (engine.Engine{Strict: true}).Render(chart, all)
	if err != nil {
		return "", err
	}
	var out []string
	for name, text := range files {
		if strings.HasSuffix(name, ".yaml") {
			out = append(out, text)
		}
	}
	return strings.Join(out, "\n---\n"), nil
}

// kinds counts objects by kind.
func kinds(list []runtime.Object) string {
	var out []string
	for _, o := range list {
		out = append(out, strings.TrimPrefix(fmt.Sprintf("%T", o), "*v1."))
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// Kubernetes accepts the chart, with every value that changes which objects it has.
func TestChart(t *testing.T) {
	type values = map[string]any
	const run, serve = "ConfigMap Deployment Job PersistentVolumeClaim Service",
		"ConfigMap Job PersistentVolumeClaim Service"
	for name, c := range map[string]struct {
		values values
		kinds  string
	}{
		"default": {nil, run},
		"token":   {values{"tokenSecret": "token", "args": []any{"--set", "train.lr=0.01"}}, run},
		"tls":     {values{"tlsSecret": "certs"}, run},
		"nats": {values{"nats": values{"url": "nats://nats:4222"}},
			"ConfigMap Deployment Job PersistentVolumeClaim"},
		"many":    {values{"workers": values{"replicas": 16, "jobs": 2}}, run},
		"storage": {values{"data": values{"storageClassName": "fast", "accessModes": []any{"ReadWriteOnce"}}}, run},
		"serve":   {values{"mode": "serve", "tlsSecret": "certs"}, serve},
		"serve all": {values{"mode": "serve", "tlsSecret": "certs", "tokenSecret": "token",
			"metrics": values{"enabled": false}, "serve": values{"clients": 3, "service": values{"type": "LoadBalancer",
				"annotations": values{"a": "b"}}}}, serve},
		"serve insecure": {values{"mode": "serve", "serve": values{"insecure": true}}, serve},
	} {
		text, err := rendered(t, c.values)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		list, err := objects(text)
		if err == nil {
			err = check(list, "token", "certs")
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if got := kinds(list); got != c.kinds {
			t.Errorf("%s: %s, want %s", name, got, c.kinds)
		}
	}
}

// A server has certificates, or is insecure because the values say so.
func TestChartServes(t *testing.T) {
	type values = map[string]any
	_, err := rendered(t, values{"mode": "serve"})
	if err == nil || !strings.Contains(err.Error(), "mode serve needs tlsSecret") {
		t.Error(err)
	}
	for _, c := range []struct {
		values    values
		has, lack string
	}{
		{values{"tlsSecret": "certs"}, "- --tls\n", "--insecure"},
		{values{"tlsSecret": "certs", "serve": values{"insecure": true}}, "- --tls\n", "--insecure"},
		{values{"serve": values{"insecure": true}}, "- --insecure\n", "--tls"},
	} {
		c.values["mode"] = "serve"
		text, err := rendered(t, c.values)
		if err != nil || !strings.Contains(text, c.has) || strings.Contains(text, c.lack) {
			t.Errorf("%v: %v\n%s", c.values, err, text)
		}
	}
}

// Kubernetes accepts the Kustomize base, built as kubectl apply -k does.
func TestKustomize(t *testing.T) {
	list, err := objects(kustomized(t))
	if err == nil {
		err = check(list)
	}
	if err != nil {
		t.Fatal(err)
	}
	if got := kinds(list); got != "ConfigMap Deployment Job PersistentVolumeClaim Secret Service" {
		t.Error(got)
	}
}

func kustomized(t *testing.T) string {
	t.Helper()
	made, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), folder+"kustomize")
	if err != nil {
		t.Fatal(err)
	}
	text, err := made.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Each of these changes breaks the base, and the test finds it.
func TestBrokenManifests(t *testing.T) {
	whole := kustomized(t)
	for _, c := range []struct{ from, to, says string }{
		{"backoffLimit:", "backofLimit:", `unknown field "spec.backofLimit"`},
		{"replicas: 4", "replicas: four", "cannot unmarshal string"},
		{"replicas: 4", "replicas: 4\n  replicas: 5", `already set`},
		{"kind: Deployment", "kind: Deploymnt", "no kind"},
		{"apiVersion: batch/v1\n", "apiVersion: batch/v2\n", "no kind"},
		{"readOnly: true", "readOnly: \"yes\"", "cannot unmarshal string"},
		{"containerPort: 4222", "containerPort: nats", "cannot unmarshal string"},
		{"cpu: \"1\"", "cpu: one", "quantities"},
		{"capabilities:", "capability:", "unknown field"},
		{"restartPolicy: OnFailure", "restartPolicy: Always", `restartPolicy "Always"`},
		{"mountPath: /experiment\n          name: experiment", "mountPath: /experiment\n          name: experimnt",
			"no volume"},
		{"claimName: promptfed", "claimName: prompt", "no claim prompt"},
		{"targetPort: nats", "targetPort: http", "no port http"},
		{"      labels:\n        app.kubernetes.io/component: run",
			"      labels:\n        app.kubernetes.io/component: runs",
			"selects the pods of 0"},
		{"matchLabels:\n      app.kubernetes.io/component: worker",
			"matchLabels:\n      app.kubernetes.io/component: other",
			"does not select its own pods"},
		{"runAsNonRoot: true", "runAsNonRoot: false", "be root"},
	} {
		broken := strings.Replace(whole, c.from, c.to, 1)
		if broken == whole {
			t.Errorf("there is no %q to break", c.from)
		}
		list, err := objects(broken)
		if err == nil {
			err = check(list)
		}
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%q: %v, want %q", c.to, err, c.says)
		}
	}
}
