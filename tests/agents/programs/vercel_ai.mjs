// Vercel's AI SDK. Modes: responses (its default for OpenAI), chat, compatible, anthropic; stream.
import { createAnthropic } from '@ai-sdk/anthropic';
import { createOpenAI } from '@ai-sdk/openai';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { generateText, isStepCount, streamText, tool } from 'ai';
import { z } from 'zod';

import { MAX_TOKENS, MAX_TURNS, SYSTEM, TEMPERATURE, TOOLS, main } from './desk.mjs';

function model(run) {
  const to = { baseURL: run.base_url, apiKey: run.api_key };
  if (run.modes.has('anthropic')) return createAnthropic(to)(run.model);
  if (run.modes.has('compatible')) return createOpenAICompatible({ ...to, name: 'hone' })(run.model);
  return run.modes.has('chat') ? createOpenAI(to).chat(run.model) : createOpenAI(to)(run.model);
}

async function answer(run) {
  const tools = Object.fromEntries(
    Object.entries(TOOLS).map(([name, { argument, description }]) => [
      name,
      tool({
        description,
        inputSchema: z.object({ [argument]: z.string() }),
        execute: async (given) => run.call(name, given),
      }),
    ]),
  );
  const asked = {
    model: model(run),
    system: SYSTEM,
    prompt: run.question,
    tools,
    temperature: TEMPERATURE,
    maxOutputTokens: MAX_TOKENS,
    stopWhen: isStepCount(MAX_TURNS),
  };
  if (!run.modes.has('stream')) return (await generateText(asked)).text;
  return await streamText(asked).text;
}

await main(answer);
