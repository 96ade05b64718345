#!/bin/bash
# FedPHA on Office31, in the form of its launch scripts
DATA=/data/sets
CUDA_VISIBLE_DEVICES=0 python federated_main.py --root ${DATA} --trainer GL_SVDMSE --dataset office31 \
    --backbone ViT-B/16 --num_users 6 --beta 0.5 --ratio 0.8 --alpha 1.0 --seed 2 --n_ctx 16 --num_shots 4 \
    --train_batch_size 32 DATASET.USERS 6 OPTIM.ROUND 30
