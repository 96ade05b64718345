#!/usr/bin/env bash
# Writes the table of docs/terms.md into runs/terms/terms.md. It holds two measurements: tiny, of configs/methods with fewer
# clients and synthetic images, on the tiny backbone; and full, with default options, on ViT-B/16's text tower with random
# weights and random unit rows for images. The argument is the name of one measurement, whose column alone is filled;
# the default is both. A case with an existing file is not run again.
set -euo pipefail
# PROMPTFED is the path of the program; the default is bin/promptfed.
out=runs/terms
mkdir -p "$out"
export LC_ALL=C
shopt -s nullglob

# measure SIZE LABEL CONFIG FLAGS... writes the rows of one case.
measure() {
	local size=$1 label=$2 config=$3
	shift 3
	local file=$out/$size-${label//[^A-Za-z0-9]/_}.rows
	[ -s "$file" ] && return
	"${PROMPTFED:-bin/promptfed}" terms "configs/methods/$config.yaml" --markdown --short --set "name=$label" "${flags[@]}" "$@" 2>"$out/log" >"$file.md" ||
		{ cat "$out/log" >&2; exit 1; }
	{ grep '^|' "$file.md" || true; } | tail -n +3 >"$file"
	sed -n 's/^note: /  /p' "$file.md" >>"$out/$size.notes"
}

# several SIZE measures the methods whose losses have more than one term, also with earlier defaults.
several() {
	measure "$1" FedPHA fedpha
	measure "$1" "FedPHA, exact-null" fedpha --set options.projector=exact-null
	measure "$1" SDFed sdfed
	measure "$1" FedPGP fedpgp
	measure "$1" UOPP uopp
	measure "$1" FedCLIP fedclip
	measure "$1" FedAPPR fedappr --set options.warmup=0
	measure "$1" "FedAPPR, one sgd step" fedappr --set options.warmup=0 --set options.disc_optim=sgd --set options.disc_norm=none --set options.disc_steps=1
	measure "$1" FedProx fedprox
	measure "$1" FedDyn feddyn
	measure "$1" SCAFFOLD scaffold
	measure "$1" "SCAFFOLD, path" scaffold --set options.control=path
	measure "$1" FedNTD fedntd
	measure "$1" MOON moon
	measure "$1" "MOON, uncentred" moon --set options.centre=false
	measure "$1" FedProto fedproto
	measure "$1" "FedProto, mean, 0.1" fedproto --set options.distance=mean --set options.lambda=0.1
}

# collect joins the rows of both measurements. A cell has the first and the last round, or one number if they are equal.
collect() {
	awk -F ' *[|] *' '
	function short(x) { return x ~ /[0-9]/ ? sprintf("%.2g", x) : x }
	function pair(first, last) { return first == last ? first : first ", " last }
	function cell(size, term) { return " | " ((size, term) in relative ? relative[size, term] : "-") }
	{
		term = $2 " | " $3
		if (!(term in method)) {
			order[++terms] = term
			method[term] = $2
			entropies[$2] += $3 ~ /^cross entropy/
		}
		relative[FILENAME ~ /\/full-/ ? "full" : "tiny", term] = pair(short($9), short($10))
	}
	END {
		print "| method | term | full size | tiny |"
		print "|:--- |:--- | ---:| ---:|"
		for (i = 1; i <= terms; i++) {
			t = order[i]
			if (t !~ /[|] cross entropy/ || entropies[method[t]] > 1) # of a single one the norm is 1
				print "| " t cell("full", t) cell("tiny", t) " |"
		}
	}' "$@"
}

for size in ${1:-tiny full}; do
	: >"$out/$size.notes"
	case $size in
	tiny)
		flags=(--rounds 3 --set train.epochs=1 --set partition.clients=4 --set data.generator.train=8 --set data.generator.test=2)
		several tiny
		measure tiny FedHPL fedhpl
		measure tiny FedPR fedpr
		;;
	full)
		flags=(--rounds 2 --full-size --set options={} --set train.lr=0.002 --set train.epochs=1 --set train.batch=8 --set partition.kind=iid
			--set partition.clients=2 --set data.classes=base --set data.generator.train=2 --set data.generator.test=1)
		several full
		;;
	esac
done
collect "$out"/tiny-*.rows "$out"/full-*.rows >"$out/terms.md"
echo "$out/terms.md"
