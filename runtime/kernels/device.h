// What the operators of device.cu compute, for the host and for a CUDA device.
enum { WARP = 32, ROW_THREADS = 128, KEY_THREADS = 256, LABEL_THREADS = 1024, ASKED = 3, FLOAT16 = 10,
	BFLOAT16 = 16 };

// task is one run of an operator on a device. All pointers are of the device.
typedef struct {
	const float *in[6];
	const long long *spans, *labels;
	const long long *asked; // of each row: the first query that attends to it, the one behind the last, and its own or -1
	float *out[3];
	long long rows, width;          // of the first input; for attention: number of tokens, width of the queries
	long long queries, heads, keys; // of attention
	float scale;
	int low; // type of what has a lower precision: FLOAT16, BFLOAT16, or 0 for none
} task;
